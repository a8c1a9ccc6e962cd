# Sourced by script/test behind lib.sh (bash). Steps whose cases are counted, and system tests that are tried again.

results=()       # junit files
failed_alone=0   # failed steps that no case tells of
passed_again=()  # tests that failed once and then passed three times
strict=${strict:-}
export BASETEMP=/tmp/abx-test-$$

# plain NAME SECONDS COMMAND...: a step without test cases.
plain() {
    step "$@" && return 0
    failed_alone=$((failed_alone + 1))
    return 1
}

# tested NAME SECONDS RESULT COMMAND...: a step that leaves its cases in the junit file RESULT.
tested() {
    local name=$1 limit=$2 result=$3 rc=0 kept=$LOGS/$1.xml
    shift 3
    rm -f "$result" "$kept"
    step "$name" "$limit" "$@" || rc=1
    [ "$result" = "$kept" ] || cp "$result" "$kept" 2>/dev/null
    results+=("$kept")
    say "        $name: $(python3 tests/count_results.py "$kept")"
    if [ $rc != 0 ] && python3 tests/count_results.py "$kept" | grep -q ' 0 failed'; then
        failed_alone=$((failed_alone + 1))
    fi
    return $rc
}

# More failures than this are no accident of a busy machine.
AGAIN_MAX=6

# pytest_here RESULT ENVIRONMENT... -- ARGUMENTS...: leaves junit in RESULT, with the file of each case as seen from here
# (pytest's own root is the folder of its settings).
pytest_here() {
    local result=$1 with=()
    shift
    while [ "$1" != -- ]; do
        with+=("$1")
        shift
    done
    shift
    rm -rf --one-file-system "$BASETEMP"
    env ABX_BUILD="$ROOT/build" PYTHONDONTWRITEBYTECODE=1 "${with[@]}" "$ABX_TOOLS/py/bin/python" -m pytest \
        -v -p no:cacheprovider --durations=30 --basetemp="$BASETEMP" --junitxml="$result" -o junit_family=xunit1 \
        --rootdir="$PWD" "$@"
}

# thrice RESULT ENVIRONMENT... -- TESTS...
thrice() {
    pytest_here "$@" && pytest_here "$@" && pytest_here "$@"
}

# again NAME SECONDS ENVIRONMENT...: the tests that failed in the step NAME, three times, alone. 0 if they all passed.
again() {
    local name=$1 limit=$2 failed=()
    shift 2
    mapfile -t failed < <(python3 tests/count_results.py --failed "$LOGS/$name.xml")
    [ ${#failed[@]} -gt 0 ] && [ ${#failed[@]} -le $AGAIN_MAX ] || return 1
    say "again, alone: ${failed[*]}"
    step "$name-again" "$limit" thrice "$LOGS/$name-again.xml" "$@" -- "${failed[@]}" || return 1
    passed_again+=("${failed[@]}")
    unset "FAILED_STEPS[-1]"
}

# pytest_run NAME SECONDS MARKS WORKERS FILES ENVIRONMENT...: several files at a time with more than one worker.
pytest_run() {
    local name=$1 limit=$2 marks=$3 workers=$4 files=$5 parallel=() rc=0
    shift 5
    [ "$workers" = 1 ] || parallel=(-n "$workers" --dist loadfile --no-loadscope-reorder)
    tested "$name" "$limit" "$LOGS/$name.xml" pytest_here "$LOGS/$name.xml" "$@" -- $files -m "$marks" "${parallel[@]}" || rc=1
    if [ $rc != 0 ] && [ -z "$strict" ]; then
        again "$name" "$limit" "$@" && rc=0
    fi
    rm -rf --one-file-system "$BASETEMP"
    return $rc
}

# conclude: says what was tried again, and the counts of all junit files; 0 only if something passed and nothing failed.
conclude() {
    local line name passed failed skipped
    for name in "${passed_again[@]}"; do
        say "failed once, then passed three times alone (look into it): $name"
    done
    if [ ${#FAILED_STEPS[@]} != 0 ]; then
        say "failed: ${FAILED_STEPS[*]} (logs in $LOGS)"
    fi
    line=$(python3 tests/count_results.py "${results[@]}")
    read -r passed _ failed _ skipped _ <<<"$line"
    passed=$((passed + ${#passed_again[@]}))
    failed=$((failed + failed_alone - ${#passed_again[@]}))
    say "done"
    echo "$passed passed, $failed failed, $skipped skipped"
    [ "$failed" = 0 ] && [ "$passed" -gt 0 ] && [ ${#FAILED_STEPS[@]} = 0 ]
}
