// Gets docker-machine, GitLab's fork, as a module; see docs/interop.md.
module remuda/interop/docker-machine

go 1.26

require github.com/docker/machine v0.16.2

replace github.com/docker/machine => gitlab.com/gitlab-org/ci-cd/docker-machine v0.16.2-gitlab.30

replace github.com/dgrijalva/jwt-go => github.com/golang-jwt/jwt/v4 v4.5.1
