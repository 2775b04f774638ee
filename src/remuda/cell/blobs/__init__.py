"""Storage of blobs (artifacts and other large objects): interface and implementations; single files of zip archives."""
