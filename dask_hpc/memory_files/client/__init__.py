"""What programs use: the file system of fsspec, open files, and the handle of one that was made."""
