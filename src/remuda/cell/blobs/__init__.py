"""Storage of artifacts and other large objects: the interface, its adapters, and single files of zip archives."""
