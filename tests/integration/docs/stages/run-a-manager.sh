# The GitLab server of the page; a cell speaks its protocol.
serve_cell gitlab.example.com
export REMUDA_URL=https://gitlab.example.com REMUDA_TOKEN=$TOKEN
