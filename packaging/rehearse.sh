#!/usr/bin/env bash
# The step of rehearse/action.yml: rehearses the migrations that a pull request adds. Reads the action's
# inputs from the environment, and what GitHub gives to each step.
set -euo pipefail

# A shallow checkout does not have the base.
git cat-file -e "${BASE:?}" 2>/dev/null || git fetch --quiet --depth 1 origin "$BASE"
mapfile -d '' -t files < <(git diff -z --name-only --diff-filter=A "$BASE" HEAD -- \
    ":(glob)${MIGRATIONS:?}/**/*.sql" | sort -z)
if [ ${#files[@]} -eq 0 ]; then
    echo "No new migration in $MIGRATIONS." | tee -a "${GITHUB_STEP_SUMMARY:?}"
    echo "verdict=none" >>"${GITHUB_OUTPUT:?}"
    exit 0
fi
read -d '' -ra words <<<"${ARGUMENTS:-}" || true # to the end, which is no error
report=$(mktemp -d "${RUNNER_TEMP:?}/pgpaces-XXXXXX")

code=0
pgpaces rehearse "${files[@]}" "${WORKLOAD:?}" --from-database "${FROM_DATABASE:?}" \
    --junit "$report/junit.xml" --summary "${GITHUB_STEP_SUMMARY:?}" --safer-file "$report/safer.sql" \
    --output "$report/report.html" --progress 30 --store "$report/results.db" "${words[@]}" || code=$?

case $code in
    0) verdict=safe ;;
    30) verdict=harmful ;;
    32) verdict=unknown ;;
    *) verdict=none ;;
esac
{
    echo "verdict=$verdict"
    echo "report=$report"
} >>"${GITHUB_OUTPUT:?}"
if [ "$verdict" = unknown ] && [ "${UNKNOWN:-fail}" = pass ]; then
    code=0
fi
exit $code
