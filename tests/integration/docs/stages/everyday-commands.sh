# The cell of the reader, and its administrator's token.
REMUDA_ADMIN_TOKEN=glpat-$(head -c 12 /dev/urandom | base64 | tr -dc a-zA-Z0-9)-administrator
printf '%s\n' "$REMUDA_ADMIN_TOKEN" > token
in_terminal up <<< "REMUDA_ADMIN_TOKEN=$REMUDA_ADMIN_TOKEN remuda up"
unset REMUDA_ADMIN_TOKEN
await curl --fail --silent http://127.0.0.1:8929/-/health
