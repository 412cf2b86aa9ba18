#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Replaces ssh where a Slurm cluster does not allow it:  ddprun --ssh ./srun_shell.sh ./train
# ddprun gives a host and a line for a shell, and then communicates through stdin.
exec srun --nodes=1 --ntasks=1 --overlap --unbuffered --nodelist="$1" sh -c "$2"
