# ---- what can be asked ----------------------------------------------------------------------------------

facts() {
  ID= VERSION_ID= memory=
  [ ! -r /etc/os-release ] || . /etc/os-release
  while read -r word value _; do [ "$word" != MemTotal: ] || memory=$value; done < /proc/meminfo
  python=/usr/bin/python3
  [ -x $python ] || python=$(command -v python3)
  printf '%s=%s\n' hostname "$(uname -n)" boot_id "$boot" os_id "$ID" os_version "$VERSION_ID" kernel "$(uname -r)" \
    architecture "$(uname -m)" cpus "$(getconf _NPROCESSORS_ONLN || nproc)" memory_kb "$memory" python3 "$python" \
    containment "${way%%:*}"
}

case $VERB in
  run) run "$@" ;;
  runner)
    trap '' HUP INT TERM PIPE QUIT
    way
    arguments "$@"
    runner
    ;;
  cancel)
    KEY=$1 TOKEN=$2 GRACE=$3 K=$RUNS/$1
    way
    admit
    group
    cancel_key
    say "end state=$s clean=$clean"
    ;;
  quit)
    KEY=$1 TOKEN=$2 GRACE=$3
    way
    admit
    ( quit ) || exit 3
    say 'end'
    ;;
  token)
    TOKEN=$1 GRACE=$2
    way
    token
    ( raise ) || exit 3
    [ "$TOKEN" -le "$highest" ] || prune
    say 'end'
    ;;
  output)
    KEY=$1 K=$RUNS/$1
    output
    ;;
  purge)
    way
    purge
    ;;
  facts)
    way
    printf '\n#bringup %s begin\n' "$NONCE"
    facts
    say 'end'
    ;;
  *) fail internal "unknown verb" ;;
esac
exit 0
