#!/bin/sh
# Runs the conformance programs and says which fail: ./run.sh [command...], for example
#   ./run.sh                        natively
#   ./run.sh bloodhound exec --     under Bloodhound
# PROGRAMS="files pipes" and KINDS="static dynamic" choose. tokio-server and nondet print no checks, so they are left
# out here.
set -u
here=$(cd "$(dirname "$0")" && pwd)
failed=0
for kind in ${KINDS:-static dynamic}; do
    for path in "$here/bin/$kind"/*; do
        name=$(basename "$path")
        case $name in tokio-server | nondet | *.new.*) continue ;; esac
        case " ${PROGRAMS:-$name} " in *" $name "*) ;; *) continue ;; esac
        output=$(timeout "${SECONDS_EACH:-60}" "$@" "$path" 2>&1 </dev/null)
        status=$?
        # The plan comes last, so a program that ended early has none.
        plan=$(printf '%s\n' "$output" | sed -n 's/^1\.\.//p')
        if [ $status -eq 0 ] && [ -n "$plan" ]; then
            echo "ok $kind/$name ($plan checks)"
        else
            failed=$((failed + 1))
            echo "not ok $kind/$name (exit status $status)"
            printf '%s\n' "$output" | grep -A1 -E '^(not ok|#)|required' | sed 's/^/    /'
            [ -n "$plan" ] || printf '%s\n' "$output" | tail -n 3 | sed 's/^/    last: /'
        fi
    done
done
exit $((failed > 0))
