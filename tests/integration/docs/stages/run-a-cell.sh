# A certificate of an authority that the machine trusts; certbot and the proxies have their folders.
make_certificate ci.example.com "$PWD"
mkdir -p /etc/letsencrypt/renewal-hooks/deploy

# use_the_cell NAME: push a repository NAME, run its job with a manager, fetch the artifact, through the proxy.
use_the_cell() {
    local url=https://ci.example.com token
    token=$(cat admin-token)
    await curl --fail --silent $url/-/health
    git init --quiet --initial-branch main "$1"
    cat > "$1/.gitlab-ci.yml" <<'YAML'
job:
  script: [head -c 3000000 /dev/urandom > made.bin, sleep 1, echo "made by $CI_PROJECT_URL"]
  artifacts: {paths: [made.bin]}
YAML
    head -c 3000000 /dev/urandom > "$1/large.bin"
    git -C "$1" add .
    git -C "$1" -c user.name=you -c user.email=you@example.org commit --quiet --message First
    git -C "$1" push --quiet "https://me:$token@ci.example.com/root/$1.git" main
    runner=$(curl --fail --silent --header "PRIVATE-TOKEN: $token" --data runner_type=instance_type $url/api/v4/user/runners)
    runner=$(python3 -c 'import json, sys; print(json.load(sys.stdin)["token"])' <<< "$runner")
    remuda manager register --url $url --token "$runner" --executor shell --config "/root/$1.toml"
    in_terminal "manager-$1" <<< "remuda manager run --config /root/$1.toml --data /root/$1-data"
    local jobs="$url/api/v4/projects/root%2F$1/jobs"
    await sh -c "curl --fail --silent --header 'PRIVATE-TOKEN: $token' '$jobs' | grep '\"status\":\"success\"'"
    test "$(git -C "$1" rev-parse HEAD)" = "$(git ls-remote "https://me:$token@ci.example.com/root/$1.git" main | cut -f 1)"
    curl --fail --silent --header "PRIVATE-TOKEN: $token" --output "$1.zip" \
        "$url/api/v4/projects/root%2F$1/jobs/artifacts/main/download?job=job"
    test "$(stat --format %s "$1.zip")" -gt 2900000
    curl --fail --silent --header "PRIVATE-TOKEN: $token" "$jobs" | grep "https://ci.example.com/root/$1/" > /dev/null
    # The proxy connects from 127.0.0.1, and the page's machine has this second address.
    curl --fail --silent --interface 10.99.0.1 --header "PRIVATE-TOKEN: $token" --data name=x \
        "$url/api/v4/projects/root%2F$1/hooks?url=https://hook.example.com" > /dev/null
    curl --fail --silent --header "PRIVATE-TOKEN: $token" "$url/api/v4/audit_events" | grep '"ip_address":"10.99.0.1"' > /dev/null
    end_terminal "manager-$1"
}
ip address add 10.99.0.1/32 dev lo

# serve_database: the PostgreSQL server of the page, as db.example.com.
serve_database() {
    local programs
    programs=$(echo /usr/lib/postgresql/*/bin)
    install -d -o postgres -g postgres /var/lib/database /run/postgresql
    runuser -u postgres -- "$programs/initdb" --auth trust --no-sync --pgdata /var/lib/database > /dev/null
    runuser -u postgres -- "$programs/pg_ctl" --pgdata /var/lib/database --wait --log /var/lib/database/log start > /dev/null
    echo "127.0.0.1 db.example.com" >> /etc/hosts
    runuser -u postgres -- createuser remuda
    runuser -u postgres -- createdb --owner remuda remuda
}
