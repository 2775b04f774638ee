# The configuration of the gitlab-runner that the reader switches from.
mkdir /etc/gitlab-runner
cat > /etc/gitlab-runner/config.toml <<'TOML'
concurrent = 4

[[runners]]
  name = "builder"
  url = "https://gitlab.example.com"
  token = "glrt-0123456789abcdefghij"
  executor = "shell"
TOML
