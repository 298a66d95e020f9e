#!/usr/bin/env bash
# Third step of action.yml: runs `bloodhound test` and reports. Everything comes through the environment: BLOODHOUND
# (the binary) and INPUT_*. The exit code is that of `bloodhound test` unless the input fail-on forgives it. Of a job that is
# cancelled GitHub sends SIGINT to this script, SIGTERM 7.5 s later, and SIGKILL after 2.5 s more: they are passed on, so that
# what was found until then is written, reported and uploaded.
set -euo pipefail

fail() {
    printf '::error title=Bloodhound::%s\n' "$(printf '%s' "$1" | tr '\r\n%' '   ')"
    printf 'result=error\nexit-code=2\n' >> "$GITHUB_OUTPUT"
    exit 2
}

cd "${INPUT_WORKING_DIRECTORY:-.}" || fail "there is no directory ${INPUT_WORKING_DIRECTORY}"
case ${INPUT_FAIL_ON:-any} in
    any | findings | never) ;;
    *) fail "the input fail-on is ${INPUT_FAIL_ON}; any, findings and never are known" ;;
esac
case ${INPUT_PLATFORM:-auto} in
    auto | ptrace | kvm) ;;
    *) fail "the input platform is ${INPUT_PLATFORM}; auto, ptrace and kvm are known" ;;
esac

config=${INPUT_CONFIG:-bloodhound.yaml}
out=${INPUT_OUTPUT_DIR:-bloodhound-output}
case $out in
    /*) ;;
    *) out=$PWD/$out ;;
esac
files=(--config="$config")
if [ -n "${INPUT_COMPOSE:-}" ]; then files+=(--compose="$INPUT_COMPOSE"); fi

# What is wrong in the files, at its lines. `test` says it again and decides about the exit code.
annotations=()
if [ "${INPUT_ANNOTATIONS:-true}" = true ]; then
    annotations=(--annotations)
    "$BLOODHOUND" validate "${files[@]}" --format=github || echo "The configuration has errors."
fi

arguments=("${files[@]}" --out="$out" --format=json)
if [ "${INPUT_PLATFORM:-auto}" != auto ]; then arguments+=(--platform="$INPUT_PLATFORM"); fi
if [ -n "${INPUT_SEEDS:-}" ]; then arguments+=(--seeds="$INPUT_SEEDS"); fi
if [ -n "${INPUT_TIMEOUT:-}" ]; then arguments+=(--timeout="$INPUT_TIMEOUT"); fi
if [ -n "${INPUT_FAULT_COVERAGE_THRESHOLD:-}" ]; then
    arguments+=(--fault-coverage-threshold="$INPUT_FAULT_COVERAGE_THRESHOLD")
fi
if [ -n "${INPUT_COVERAGE_THRESHOLD:-}" ]; then
    arguments+=(--coverage-threshold="$INPUT_COVERAGE_THRESHOLD")
fi
while IFS= read -r argument; do
    if [ -n "$argument" ]; then arguments+=("$argument"); fi
done <<< "${INPUT_ARGS:-}"

# Services print what they like: between the markers nothing is taken for a workflow command.
token=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
result=${RUNNER_TEMP:-/tmp}/bloodhound-result-$token.json
# Known from now on: should this script not come to its end, what is there is uploaded all the same.
case $out in
    *$'\n'*) fail "the input output-dir has a line break" ;;
esac
printf 'report-dir=%s\n' "$out" >> "$GITHUB_OUTPUT"

pid=
passed_on=
pass_on() {
    passed_on=1
    if [ -n "$pid" ]; then kill -s "$1" "$pid" 2>/dev/null || true; fi
}
trap 'pass_on INT' INT
trap 'pass_on TERM' TERM

echo "::stop-commands::$token"
# In the background, for bash runs a trap only when the program that it waits for has ended; with job control, for without it
# SIGINT is ignored there.
set -m
"$BLOODHOUND" test "${arguments[@]}" > "$result" < /dev/null &
pid=$!
set +m
# One that came before there was a process.
if [ -n "$passed_on" ]; then kill -s INT "$pid" 2>/dev/null || true; fi
while :; do
    passed_on=
    code=0
    wait "$pid" || code=$?
    # A signal ends the waiting, and not the program; who has ended is waited for once more with the same answer.
    if [ -z "$passed_on" ]; then break; fi
done
pid=
cat -- "$result"
# On a line of its own, whatever came before.
printf '\n::%s::\n' "$token"

summary=()
if [ "${INPUT_JOB_SUMMARY:-true}" = true ] && [ -n "${GITHUB_STEP_SUMMARY:-}" ]; then
    summary=(--summary="$GITHUB_STEP_SUMMARY")
fi
# The lines of a pull request are compared with the branch that it is to go into, of which a checkout has nothing at first.
base=${INPUT_DIFF_BASE:-auto}
changes=()
if [ "$base" = auto ]; then
    base=
    if [ -n "${GITHUB_BASE_REF:-}" ] && [ -f "$out/coverage/coverage.json" ]; then
        if git fetch --quiet --no-tags --depth=1 origin "refs/heads/$GITHUB_BASE_REF"; then
            base=FETCH_HEAD
        else
            echo "::notice title=Bloodhound::the branch of the pull request cannot be fetched, so nothing is said of its changed lines"
        fi
    fi
fi
if [ -n "$base" ] && [ "$base" != none ]; then
    changes=(--diff-base="$base")
    if [ -n "${INPUT_CHANGED_LINES_THRESHOLD:-}" ]; then
        changes+=(--changed-lines-threshold="$INPUT_CHANGED_LINES_THRESHOLD")
    fi
fi
report=0
"$BLOODHOUND" github-report --result="$result" --exit-code="$code" --config="$config" --out="$out" \
    --outputs="$GITHUB_OUTPUT" "${summary[@]}" "${annotations[@]}" "${changes[@]}" || report=$?
rm -f -- "$result"
case $report in
    0) ;;
    3) if [ "$code" = 0 ]; then code=3; fi ;;
    *) exit "$report" ;;
esac

# 1 findings, 3 coverage below a threshold, 4 no verdict; everything else is an error.
case ${INPUT_FAIL_ON:-any}:$code in
    findings:3 | findings:4 | never:1 | never:3 | never:4)
        echo "bloodhound test ended with exit code $code, which the input fail-on forgives."
        exit 0
        ;;
esac
exit "$code"
