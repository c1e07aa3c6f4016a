# shellcheck shell=bash
# Renames a Slurm job and its log to include the model.
#
# Slurm opens the log as logs/NAME_JOB.out (#SBATCH --job-name and --output) before the script has determined the model. Later starts use
# the job's current name for the log. The log of an array task is renamed to NAME_ARRAY_TASK.out, because no single sbatch pattern suits
# both jobs and array tasks.

readonly MPZERO_JOB_NAME=mpzero # --job-name in train.sbatch

# name_job: sets the name and the log of this job, unless the user set them with --job-name or --output.
name_job() {
  local name=${SLURM_JOB_NAME:-} new suffix=$SLURM_JOB_ID logs log
  [[ -n $name ]] || return 0
  mapfile -t logs < <(own_logs "$name")
  new=$name
  # Keep the job's name if the log has a different pattern, which may contain this name.
  if [[ $name == "$MPZERO_JOB_NAME" ]] && ((${#logs[@]} > 0)); then
    new=$(model_file_name)-mpzero
    ask_slurm scontrol update "JobId=$(slurm_job)" "JobName=$new" >/dev/null 2>&1 || return 0
  fi
  [[ -z ${SLURM_ARRAY_JOB_ID:-} ]] || suffix=${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID
  for log in "${logs[@]}"; do rename_log "$log" "${log%/*}/${new}_$suffix.${log##*.}"; done
}

# own_logs NAME: the files that this shell writes to, if their names follow this project's pattern.
own_logs() {
  local descriptor log
  for descriptor in 1 2; do
    log=$(readlink "/proc/$$/fd/$descriptor") || continue
    [[ -f $log && ${log##*/} == "$1_$SLURM_JOB_ID."* ]] && printf '%s\n' "$log"
  done | sort --unique
}

# rename_log FROM TO: renames an open log. If TO exists from an earlier start, its lines precede the new lines.
rename_log() {
  local from=$1 to=$2 both
  if [[ $from == "$to" || -L $to || (-e $to && ! -f $to) ]]; then return 0; fi
  if [[ -s $to ]]; then
    both=$(mktemp -- "$to.XXXXXX" 2>/dev/null) || return 0
    { cat "$to" "$from" >"$both" && cat "$both" >"$from"; } 2>/dev/null || { rm -f "$both" && return 0; }
    rm -f "$both"
  fi
  mv -f "$from" "$to" 2>/dev/null || true
}
