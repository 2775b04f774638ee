# The server of the reader's remote, with the project acme/ci and the reader's login; and a clone of that project.
serve_cell gitlab.example.com
REMUDA_URL=https://gitlab.example.com REMUDA_TOKEN=$TOKEN remuda group create acme
git config --global credential.helper store
printf 'https://me:%s@gitlab.example.com\n' "$TOKEN" > ~/.git-credentials
git init --quiet --initial-branch main ci
printf 'included:\n  script: echo "from another project"\n' > ci/jobs.yml
git -C ci add jobs.yml
git -C ci -c user.name=ann -c user.email=ann@example.com commit --quiet --message First
git -C ci push --quiet https://gitlab.example.com/acme/ci.git main
unset TOKEN
