#!/usr/bin/env bash
# The step of action.yml: compares two levels by new pairs, as a gate. Reads the action's inputs from
# the environment, and what GitHub gives to each step.
set -euo pipefail

read -d '' -ra words <<<"${ARGUMENTS:-}" || true # to the end, which is no error
report=$(mktemp -d "${RUNNER_TEMP:?}/pgpaces-XXXXXX")

code=0
pgpaces compare "${A:?}" "${B:?}" --run "${WORKLOAD:?}" --metric "${METRIC:?}" --delta "${DELTA:?}" \
    --pairs "${PAIRS:?}" --gate --junit "$report/junit.xml" --summary "${GITHUB_STEP_SUMMARY:?}" \
    --output "$report/report.html" --progress 30 --store "$report/results.db" "${words[@]}" || code=$?

case $code in
    0) verdict=good ;;
    30) verdict=worse ;;
    32) verdict=unknown ;;
    *) verdict=none ;;
esac
{
    echo "verdict=$verdict"
    echo "report=$report"
} >>"${GITHUB_OUTPUT:?}"
if [ "$verdict" = unknown ] && [ "${UNKNOWN:-pass}" = pass ]; then
    code=0
fi
exit $code
