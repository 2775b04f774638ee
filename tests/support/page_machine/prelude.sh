# Functions for pages and their stages; tests/support/page_runs.py starts each page with them.
set -euo pipefail
PAGE=/run/page/tmp

# Execute the commands on stdin in another terminal, which goes on beside the page; its output is in $PAGE/NAME.terminal.
# If a stage has made a network namespace with this name, it is a machine of its own, with its home in /home/NAME.
in_terminal() {
    local machine=()
    cat > "$PAGE/$1.commands"
    : > "$PAGE/$1.terminal"
    if [ -e "/run/netns/$1" ]; then
        machine=(nsenter "--net=/run/netns/$1" "--wd=/home/$1" env "HOME=/home/$1")
    fi
    setsid "${machine[@]}" bash -euo pipefail "$PAGE/$1.commands" > "$PAGE/$1.terminal" 2>&1 < /dev/null &
    echo $! > "$PAGE/$1.pid"
}

# Type Ctrl-C in that terminal and wait for the end of its commands.
end_terminal() {
    kill -INT -- "-$(cat "$PAGE/$1.pid")"
    wait "$(cat "$PAGE/$1.pid")" || test $? -ge 128
}

# Repeat a command until it succeeds, a minute at most. Its output is shown if it never does.
await() {
    local until=$((SECONDS + 60))
    until "$@" > $PAGE/await-output 2>&1; do
        if [ $SECONDS -ge $until ]; then
            echo "never succeeded: $*" >&2
            tail -n 40 $PAGE/await-output $PAGE/*.terminal $PAGE/*.journal >&2 || true
            return 1
        fi
        sleep 0.2
    done
}

expect_exit_code() {
    if [ "$1" != "$2" ]; then
        echo "the commands must end with $1, they ended with $2" >&2
        return 1
    fi
}

# Keep what the commands between these two print, for compare_output.
begin_output() {
    exec 3>&1 4>&2 > "$PAGE/output" 2>&1
}

end_output() {
    exec 1>&3 2>&4 3>&- 4>&-
}

show_end() {
    local code=$?
    if { true >&3; } 2> /dev/null; then
        end_output
        cat "$PAGE/output" >&2
    fi
    exit $code
}
trap show_end EXIT

compare_output() {
    python3 "$PAGE_MACHINE/compare_output.py" "$PAGE/output" /dev/stdin
}

# make_certificate HOST FOLDER: write fullchain.pem and privkey.pem of an authority that this machine trusts; the host is
# this machine.
make_certificate() {
    local authority=/root/authority
    if [ ! -e $authority.key ]; then
        openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout $authority.key -out $authority.crt \
            -days 3 -subj "/CN=Page Authority" 2> /dev/null
        cp $authority.crt /usr/local/share/ca-certificates/page-authority.crt
        update-ca-certificates > /dev/null 2>&1
    fi
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout "$2/privkey.pem" -out "$PAGE/request" \
        -subj "/CN=$1" 2> /dev/null
    openssl x509 -req -in "$PAGE/request" -CA $authority.crt -CAkey $authority.key -days 2 -out "$2/fullchain.pem" \
        -extfile <(echo "subjectAltName=DNS:$1") 2> /dev/null
    grep --quiet " $1\$" /etc/hosts || echo "127.0.0.1 $1" >> /etc/hosts
}

# serve_cell NAME: a cell as the server https://NAME of the page, with the administrator's token in TOKEN.
serve_cell() {
    export TOKEN=glpat-of-the-administrator
    mkdir -p "/srv/$1"
    make_certificate "$1" "/srv/$1"
    in_terminal server <<< "REMUDA_ADMIN_TOKEN=$TOKEN REMUDA_PUBLIC_URL=https://$1 remuda cell serve --data /srv/cell \
        --listen 127.0.0.1:443 --tls-certificate /srv/$1/fullchain.pem --tls-key /srv/$1/privkey.pem"
    await curl --fail --silent "https://$1/-/health"
}

# create_runner: the token of a new runner of that server in RUNNER_TOKEN.
create_runner() {
    export RUNNER_TOKEN
    RUNNER_TOKEN=$(remuda runner create --description page --output json | python3 -c '
import json, sys
print(json.load(sys.stdin)["token"])')
}
