"""SGLang with ccl's all-reduces: with_sglang.py MODEL [GPUS]

ccl's plug-in works in each process of SGLang, because CCL_INFERENCE=1 is in the environment. The
option enable_flashinfer_allreduce_fusion joins all-reduces with residual and RMSNorm.
"""

import os
import sys


def main(model, gpus=2):
    os.environ["CCL_INFERENCE"] = "1"  # before SGLang is imported
    import sglang

    engine = sglang.Engine(model_path=model, tp_size=int(gpus), enable_flashinfer_allreduce_fusion=True)
    answers = engine.generate(["The first all-reduce"], {"max_new_tokens": 16})
    for answer in answers:
        print(answer["text"])
    engine.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
