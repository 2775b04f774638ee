// Gets versitygw, an S3 server, as a module; see docs/interop.md.
module remuda/interop/versitygw

go 1.26

require github.com/versity/versitygw v1.8.0
