# shellcheck shell=bash
# train.sbatch outside of a job, e.g. on a login node: --dry_run for the job that sbatch would start.

# plan_job SCRIPT: exits with mpzero's output of --dry_run for the number of nodes in the script's #SBATCH lines and the GPUs of the
# largest node in the partition (SBATCH_PARTITION; empty: all partitions). --world_size and --nproc_per_node override these numbers.
plan_job() {
  local nodes gpus=0 cores=0 resources count listed
  local found="Slurm lists no GPUs"
  nodes=$(positive_number_or "$(sed -n 's/^#SBATCH --nodes=//p' "$1")" 1)
  listed=$(sinfo --noheader --format='%c %G' ${SBATCH_PARTITION:+--partition="$SBATCH_PARTITION"} 2>&1) || {
    found="sinfo failed ($(tail -n 1 <<<"$listed"))"
    listed=""
  }
  while read -r count resources; do
    count=$(positive_number_or "${count%+}" 0)
    ((count <= cores)) || cores=$count
    count=$(gpus_in "$resources")
    ((count <= gpus)) || gpus=$count
  done <<<"$listed"
  if on_cpu; then gpus=0; fi
  ((gpus > 0)) || gives_any device || say "$found: planning for CPUs. To plan for 8 GPUs per node, set NPROC=8 and pass --device cuda."
  choose_settings "$gpus" qwen3_0_6b
  complete_defaults
  require_environment
  require_programs
  name_data
  training_flags
  check_run "$(ranks_per_node "$gpus" "$((cores > 0 ? cores : $(visible_cpus)))")" "$nodes"
}
