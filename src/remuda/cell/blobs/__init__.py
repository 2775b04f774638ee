"""Storage of blobs (artifacts and other large objects): the interface and its implementations; also reads single files
of zip archives."""
