#!/bin/bash
# Task prolog: an engine starts only while its saved plan holds on the GPUs of the job.
#
#   slurm.conf   TaskProlog=/etc/slurm/specplan-prolog.sh
#   or a step    srun --ntasks-per-node=1 --task-prolog=/etc/slurm/specplan-prolog.sh vllm serve …
#   the job      export SPECPLAN_REPORT=/shared/plans/plan.json; without it nothing is checked
#
# 0 runs the task. Any other code cancels it, with the reason in its output; the node is left alone. As Prolog= in
# slurm.conf the same code would drain the node, so there it refuses nothing and says so.

set -u
specplan=${SPECPLAN:-/opt/specplan/bin/specplan}

# What Slurm writes to the task's output is only what follows "print ".
say() {
    local line
    while IFS= read -r line; do
        printf 'print specplan: %s\n' "$line"
    done <<<"$1"
}

case ${SLURM_SCRIPT_CONTEXT:-prolog_task} in
    prolog_task) ;;
    *)
        echo "specplan: nothing was checked; this is a script for TaskProlog, not for $SLURM_SCRIPT_CONTEXT" >&2
        exit 0
        ;;
esac
[[ -n ${SPECPLAN_REPORT:-} ]] || exit 0

# The environment is the task's: CUDA_VISIBLE_DEVICES names the job's GPUs.
answer=$("$specplan" check "$SPECPLAN_REPORT" --wait "${SPECPLAN_WAIT:-30}" --offline --quiet --no-progress 2>&1 </dev/null)
code=$?
say "$answer"
if ((code != 0)); then
    say "job ${SLURM_JOB_ID:-?} is not started on ${SLURMD_NODENAME:-this node}: the check of $SPECPLAN_REPORT ended with $code"
fi
exit "$code"
