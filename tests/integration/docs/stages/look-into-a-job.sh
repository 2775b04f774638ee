# A server, a manager that keeps failed jobs, and job 12, which runs until it may fail.
serve_cell ci.example.com
export REMUDA_URL=https://ci.example.com REMUDA_TOKEN=$TOKEN
create_runner
remuda manager register --url $REMUDA_URL --token "$RUNNER_TOKEN" --executor shell --config config.toml
sed 's/^concurrent = 1/concurrent = 4/' config.toml > manager.toml
printf '  [runners.remuda]\n    hold_failed = "30m"\n' >> manager.toml
in_terminal manager <<< "remuda manager run --config manager.toml --data manager"
git init --quiet --initial-branch main app
cat > app/.gitlab-ci.yml <<'YAML'
before:
  parallel: 11
  script: ["true"]
test:
  stage: deploy
  script:
    - mkdir build && echo tested > build/test.log
    - until [ -e finish ]; do sleep 0.1; done
    - exit 1
YAML
git -C app add .gitlab-ci.yml
git -C app -c user.name=you -c user.email=you@example.org commit --quiet --message First
git -C app push --quiet "https://me:$TOKEN@ci.example.com/root/app.git" main
await sh -c "remuda job shell 12 -- cat build/test.log | grep tested"
mkdir fixes && touch fixes/fix

let_job_12_fail() {
    remuda job shell 12 -- touch finish
    await sh -c "remuda job list --all --held | grep ' *12 '"
}
