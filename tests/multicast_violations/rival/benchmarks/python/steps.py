dist.init_process_group("nccl")
