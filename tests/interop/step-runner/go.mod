// Gets GitLab's step runner as a module; see docs/interop.md.
module remuda/interop/step-runner

go 1.26

require gitlab.com/gitlab-org/step-runner v0.4.0
