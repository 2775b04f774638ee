// Gets upstream's tool that publishes and installs plugins, as a module; see docs/interop.md.
module remuda/interop/fleeting-artifact

go 1.26

require gitlab.com/gitlab-org/fleeting/fleeting-artifact v0.0.0-20241018172108-3f6e6586dc5c
