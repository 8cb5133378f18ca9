"""vLLM with ccl's all-reduces: with_vllm.py MODEL [GPUS]

ccl's plug-in works in each process of vLLM, because CCL_INFERENCE=1 is in the environment. The pass
fuse_allreduce_rms joins all-reduces with residual and RMSNorm.
"""

import os
import sys


def main(model, gpus=2):
    os.environ["CCL_INFERENCE"] = "1"  # before vLLM is imported
    from vllm import LLM, SamplingParams

    engine = LLM(
        model=model, tensor_parallel_size=int(gpus),
        compilation_config={"pass_config": {"fuse_allreduce_rms": True}},
    )  # fmt: skip
    for answer in engine.generate(["The first all-reduce"], SamplingParams(max_tokens=16)):
        print(answer.outputs[0].text)


if __name__ == "__main__":
    main(*sys.argv[1:])
