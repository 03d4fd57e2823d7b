"""Driver generations and machines as named scenarios, in the language of ``fake_nvml.c``.

Figures are real ones where a public source has them; it stands beside the scenario.
"""

MIB = 2**20

H100_TOTAL = 81_559 * MIB
#: nvidia-smi -q of an idle H100 with driver 580: 81,559 MiB total, 551 MiB reserved, 81,007 MiB free.
H100_RESERVED = 551 * MIB
H100_NAME = "NVIDIA~H100~80GB~HBM3"


def h100(number: int, extra: str = "") -> str:
    """The line of one H100."""
    uuid = f"GPU-{number:08d}-0000-0000-0000-000000000000"
    return f"gpu uuid={uuid} name={H100_NAME} total={H100_TOTAL} reserved={H100_RESERVED} cc=9.0 mig=off {extra}\n"


TWO_H100 = h100(0, f"used={20 * 2**30}") + h100(1) + f"process gpu=0 pid=4242 used={19 * 2**30} name=python3\n"

#: A desktop card: no MIG, an X server whose share the driver does not tell, driver 580.
RTX_3090_WITH_X = f"""\
gpu uuid=GPU-3090 name=NVIDIA~GeForce~RTX~3090 total={24_576 * MIB} reserved={318 * MIB} used={700 * MIB} cc=8.6
process gpu=0 pid=1500 kind=graphics name=/usr/lib/xorg/Xorg
process gpu=0 pid=2600 kind=compute used={400 * MIB} name=python3
process gpu=0 pid=2600 kind=graphics used={90 * MIB}
"""

#: An H100 in MIG mode with two instances; nvidia-smi lists 9,984 MiB for 1g.10gb and 40,448 MiB for 3g.40gb.
MIG_H100 = (
    h100(0).replace("mig=off", "mig=on")
    + f"slice gpu=0 uuid=MIG-aaaa name={H100_NAME}~MIG~3g.40gb total={40_448 * MIB} used={5_000 * MIB} cc=9.0\n"
    + f"slice gpu=0 uuid=MIG-bbbb name={H100_NAME}~MIG~1g.10gb total={9_984 * MIB} used={10 * MIB} cc=9.0\n"
    + f"process gpu=0 slice=0 pid=77 used={4_900 * MIB} name=python3\n"
)

#: DGX Spark: memory info says "not supported" in both versions (XuehaiPan/nvitop#208).
GB10 = """\
gpu uuid=GPU-6b10 name=NVIDIA~GB10 total=0 cc=12.1
fail call=nvmlDeviceGetMemoryInfo_v2 code=3
fail call=nvmlDeviceGetMemoryInfo code=3
"""

#: Before driver 510: no memory info v2, and the total has lost the reserve already (Tesla T4: 15,109 MiB).
OLD_T4 = f"""\
system driver=470.82.01 nvml=11.470.82.01 cuda=11040
gpu uuid=GPU-74 name=Tesla~T4 total={15_109 * MIB} used={3 * MIB} cc=7.5
fail call=nvmlDeviceGetMemoryInfo_v2 code=13
"""
