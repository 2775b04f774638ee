# The reader's server and gitlab-runner: its configuration, and a unit that runs something.
serve_cell gitlab.example.com
export REMUDA_URL=https://gitlab.example.com REMUDA_TOKEN=$TOKEN
create_runner
mkdir /etc/gitlab-runner
cat > /etc/gitlab-runner/config.toml <<TOML
concurrent = 4

[[runners]]
  name = "builder"
  url = "https://gitlab.example.com"
  token = "$RUNNER_TOKEN"
  executor = "shell"
TOML
cat > /etc/systemd/system/gitlab-runner.service <<'UNIT'
[Service]
ExecStart=/bin/sleep 100000
UNIT
systemctl enable --now gitlab-runner
