// Gets git-lfs, which fetches large files of a repository, as a module; see docs/interop.md.
module remuda/interop/git-lfs

go 1.26

require github.com/git-lfs/git-lfs/v3 v3.5.1
