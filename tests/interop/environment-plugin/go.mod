// An environment plugin in Go, without anything of Remuda but the protocol; see docs/interop.md.
module remuda/interop/environment-plugin

go 1.24

require (
	google.golang.org/grpc v1.58.3
	google.golang.org/protobuf v1.33.0
)

require (
	github.com/golang/protobuf v1.5.3 // indirect
	golang.org/x/net v0.23.0 // indirect
	golang.org/x/sys v0.18.0 // indirect
	golang.org/x/text v0.14.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20231106174013-bbf56f31fb17 // indirect
)
