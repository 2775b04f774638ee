// Gets the real gitlab-runner (12.7) as a module; see docs/interop.md.
module remuda/interop/gitlab-runner

go 1.21

require gitlab.com/gitlab-org/gitlab-runner v1.11.1-0.20200110014830-8e5683f82927

replace github.com/minio/go-homedir => github.com/mitchellh/go-homedir v1.1.0
