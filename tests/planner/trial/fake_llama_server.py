"""A scripted ``llama-server``: its options, log lines and HTTP answers, without any model. Run as a program.

``FAKE_LLAMA`` says how it behaves, ``FAKE_LLAMA_NOTES`` names a folder in which every start leaves its arguments
and process id. Wordings are those of llama.cpp b10434; help and metrics of "old" are those of 2025.
"""

import json
import os
import signal
import sys
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

MODE = os.environ.get("FAKE_LLAMA", "")
HELP = """----- common params -----

-h,    --help, --usage                  print usage and exit
-t,    --threads N                      number of CPU threads to use during generation (default: -1)
-dev,  --device <dev1,dev2,..>          comma-separated list of devices to use for offloading (none = don't
                                        offload)
"""
NEW_HELP = """-fit,  --fit [on|off]                   whether to adjust unset arguments to fit in device memory
-ngl,  --gpu-layers, --n-gpu-layers N   max. number of layers to store in VRAM, either an exact number,
                                        'auto', or 'all' (default: auto)
-lv,   --verbosity, --log-verbosity N   Set the verbosity threshold. Values:
                                         - 4: trace (more info)
-cram, --cache-ram N                    set the maximum cache size in MiB (default: 8192, -1 - no limit, 0 -
--metrics                               enable prometheus compatible metrics endpoint (default: disabled)
--spec-draft-n-max N                    number of tokens to draft for speculative decoding (default: 3)
--spec-draft-n-min N                    minimum number of draft tokens to use for speculative decoding
--spec-draft-p-min, --draft-p-min P     minimum speculative decoding probability (greedy) (default: 0.00)
--spec-draft-device, -devd, --device-draft <dev1,dev2,..>
                                        comma-separated list of devices to use for offloading the draft model
--spec-draft-ngl, -ngld, --gpu-layers-draft, --n-gpu-layers-draft N
                                        max. number of draft model layers to store in VRAM, either an exact
--spec-draft-model, -md, --model-draft FNAME
                                        draft model for speculative decoding (default: unused)
--spec-type none,draft-simple,draft-eagle3,draft-mtp,ngram-simple
                                        comma-separated list of types of speculative decoding to use (default:
--draft, --draft-n, --draft-max N       the argument has been removed. use --spec-draft-n-max or
                                        --spec-ngram-mod-n-max
--draft-min, --draft-n-min N            the argument has been removed. use --spec-draft-n-min or
                                        --spec-ngram-mod-n-min
"""
OLD_HELP = """-ngl,  --gpu-layers, --n-gpu-layers N   number of layers to store in VRAM
--metrics                               enable prometheus compatible metrics endpoint (default: disabled)
--draft-max, --draft, --draft-n N       number of tokens to draft for speculative decoding (default: 16)
--draft-min, --draft-n-min N            minimum number of draft tokens to use for speculative decoding
--draft-p-min P                         minimum speculative decoding probability (greedy) (default: 0.8)
-cd,   --ctx-size-draft N               size of the prompt context for the draft model (default: 0, 0 = loaded
-devd, --device-draft <dev1,dev2,..>    comma-separated list of devices to use for offloading the draft model
-ngld, --gpu-layers-draft, --n-gpu-layers-draft N
                                        number of layers to store in VRAM for the draft model
-md,   --model-draft FNAME              draft model for speculative decoding (default: unused)
"""
BUFFERS = """0.00.076.117 I load_tensors:   CPU_Mapped model buffer size =    54.50 MiB
0.00.082.982 I llama_kv_cache:        CPU KV buffer size =     6.00 MiB
0.00.163.096 I sched_reserve:        CPU compute buffer size =     5.25 MiB
"""
#: Of the draft.
MORE_BUFFERS = """0.03.570.984 I load_tensors:   CPU_Mapped model buffer size =     2.50 MiB
0.03.582.982 I llama_kv_cache:        CPU KV buffer size =     0.25 MiB
0.03.594.405 I sched_reserve:        CPU compute buffer size =     3.00 MiB
"""
REFUSAL = """0.06.835.301 E spec common_specu: the target and draft vocabs are not compatible
0.06.835.309 E srv    load_model: failed to initialize speculative decoding context: draft model vocab type must \
match target model to use speculation
"""
OUT_OF_MEMORY = """ggml_backend_cuda_buffer_type_alloc_buffer: allocating 8137.64 MiB on device 0: cudaMalloc \
failed: out of memory
llama_model_load: error loading model: unable to allocate CUDA0 buffer
"""
UNREADABLE = """0.00.012.694 E llama_model_load: error loading model: unknown model architecture: 'strange'
0.00.012.697 E srv    load_model: failed to load model, 'x.gguf'
"""
#: Three rounds of 4, 2 and 1 accepted of 4 proposals, the last cut to 2: ten tokens after the first.
ACCEPTED, DRAFTED, ROUNDS, REACHED = 7, 10, 3, (3, 2, 1, 1)
served = {"completions": 0, "drafts": 0}


def option(name: str) -> str | None:
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else None


def speculates() -> bool:
    return bool(option("--spec-draft-model") or option("--model-draft"))


def say(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()


def complaint(body: dict[str, Any]) -> str | None:
    """What is wrong with a request for one greedy completion that can be counted and compared."""
    wanted = {"temperature": 0, "ignore_eos": True, "cache_prompt": False, "return_tokens": True, "stream": False}
    wrong = [name for name, value in wanted.items() if body.get(name) != value]
    return f"the request's {', '.join(wrong)}" if wrong else None


def answer(body: dict[str, Any]) -> dict[str, Any]:
    number = body["n_predict"]
    tokens = list(range(number))
    timings = {"prompt_n": 7, "prompt_ms": 20.0, "predicted_n": number, "predicted_ms": 10.0 * (number - 1)}
    if speculates() and MODE != "drafts nothing":
        served["drafts"] += 1
        tokens[-1] += MODE == "differs"
        # The first request warms, and is shorter or as long.
        timings |= {"predicted_ms": 40.0, "draft_n": DRAFTED, "draft_n_accepted": ACCEPTED}
    return {"content": "x", "tokens": tokens, "timings": timings}


def metrics() -> str:
    lines = ["# TYPE llamacpp:prompt_tokens_total counter", "llamacpp:prompt_tokens_total 7"]
    if MODE != "old":
        lines.append(f"llamacpp:spec_decode_num_drafts_total {ROUNDS * served['drafts']}")
        if served["drafts"]:
            name = "llamacpp:spec_decode_num_accepted_tokens_per_pos_total"
            lines += [
                f'{name}{{position="{place}"}} {count * served["drafts"]}' for place, count in enumerate(REACHED)
            ]
    return "\n".join(lines) + "\n"


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/health":
            self.reply(503 if MODE == "never ready" else 200, {"status": "ok"})
        elif self.path == "/props":
            self.reply(200, {"build_info": "b10434-7e4c0a9", "model_ftype": "Q4_K - Medium"})
        elif self.path == "/metrics" and "--metrics" in sys.argv:
            self.reply(200, metrics())
        else:
            self.reply(501, {"error": {"code": 501, "message": "not supported", "type": "not_supported_error"}})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        served["completions"] += 1
        if MODE == "dies" and speculates() and served["completions"] == 3:
            say("0.12.1 E ggml_abort: GGML_ASSERT(n_tokens > 0) failed\n")
            os._exit(134)
        wrong = "Context size has been exceeded." if MODE == "one fails" and "SQL" in body["prompt"] else None
        if wrong := wrong or complaint(body):
            self.reply(500, {"error": {"code": 500, "message": wrong, "type": "server_error"}})
        else:
            self.reply(200, answer(body))

    def reply(self, status: int, content: object) -> None:
        text = content if isinstance(content, str) else json.dumps(content)
        self.send_response(status)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the parent's name
        return


def main() -> int:
    if "--help" in sys.argv:
        print(HELP + (OLD_HELP if MODE == "old" else NEW_HELP))
        return 0
    if "--list-devices" in sys.argv:
        print("Available devices:\n  CUDA0: NVIDIA H200 (143167 MiB, 142649 MiB free)")
        return 0
    if "LLAMA_ARG_MODEL_DRAFT" in os.environ:
        say("error: a setting of the environment came through\n")
        return 1
    if notes := os.environ.get("FAKE_LLAMA_NOTES"):
        place = Path(notes) / ("pair.json" if speculates() else "alone.json")
        place.write_text(json.dumps({"pid": os.getpid(), "arguments": sys.argv[1:]}))
    say("0.00.023 I cmn  common_param: system_info: n_threads = 2 (n_threads_batch = 2) / 2 | CPU : AVX = 1 |\n")
    say(BUFFERS)
    if MODE in {"out of memory", "unreadable"}:
        say(OUT_OF_MEMORY if MODE == "out of memory" else UNREADABLE)
        return 1
    if speculates():
        say(MORE_BUFFERS)
    if MODE == "refuses" and speculates():
        say(REFUSAL)
    if MODE == "never ready":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(0.1)
    HTTPServer(("127.0.0.1", int(option("--port") or 0)), Handler).serve_forever()
    return 0


if __name__ == "__main__":
    sys.exit(main())
