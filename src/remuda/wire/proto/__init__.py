"""Generated protobuf modules and the .proto files they come from (`make protos`)."""
