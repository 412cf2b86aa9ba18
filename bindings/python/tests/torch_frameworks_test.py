# SPDX-License-Identifier: Apache-2.0
"""accelerate and transformers on the backend libddp: they refuse its name, and use it where torch.distributed has been initialised before, as the
README says."""
import importlib.util

from support import Test, forked, main, need

need("torch", "numpy")
import libddp.c10d  # noqa: E402, F401
import torch._dynamo  # noqa: E402, F401  forks have it at once, and what the first step of an optimizer imports

COMMON = """
import copy, os, warnings, libddp.c10d, torch, torch.distributed as dist
from torch import nn
warnings.simplefilter("ignore")
os.environ.update(ACCELERATE_USE_CPU="true", HF_HUB_OFFLINE="1")
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
def module():
    torch.manual_seed(5)
    return nn.Linear(3, 1)
x = torch.randn(8 * size, 3, generator=torch.Generator().manual_seed(1))
y = x.sum(1, keepdim=True)
def alone(steps, rate):
    net = module()
    optimizer = torch.optim.SGD(net.parameters(), lr=rate)
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.mse_loss(net(x), y).backward()
        optimizer.step()
    return list(net.parameters())
def fails(call):
    try:
        call()
    except Exception as error:
        assert "libddp" in str(error), error
    else:
        raise SystemExit("the README says that the name is refused")
"""


class Frameworks(Test):
    def run_ranks(self, needed, program):
        if importlib.util.find_spec(needed) is None:
            self.skipTest(f"the module {needed} is not installed")
        importlib.import_module(needed)
        self.ends_well(forked(COMMON + program, size=2, limit=200))

    def test_accelerate(self):
        self.run_ranks("accelerate", """
from accelerate import Accelerator, InitProcessGroupKwargs
fails(lambda: Accelerator(cpu=True, kwargs_handlers=[InitProcessGroupKwargs(backend="libddp")]))
from accelerate.state import AcceleratorState, PartialState
AcceleratorState._reset_state(True)
dist.init_process_group("libddp")
accelerator = Accelerator(cpu=True)
assert accelerator.num_processes == size and dist.get_backend() == "libddp"
net = module()
net, optimizer = accelerator.prepare(net, torch.optim.SGD(net.parameters(), lr=0.1))
mine = slice(8 * rank, 8 * rank + 8)
for _ in range(4):
    optimizer.zero_grad()
    accelerator.backward(nn.functional.mse_loss(net(x[mine]), y[mine]))
    optimizer.step()
assert all(map(torch.allclose, net.parameters(), alone(4, 0.1)))
""")

    def test_transformers(self):
        self.run_ranks("transformers", """
if __import__("importlib.util").util.find_spec("accelerate") is None:
    raise SystemExit(0)
from transformers import Trainer, TrainingArguments
fails(lambda: TrainingArguments(output_dir="out", use_cpu=True, ddp_backend="libddp").device)
from accelerate.state import AcceleratorState
AcceleratorState._reset_state(True)
dist.init_process_group("libddp")
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = module()
    def forward(self, x, y):
        return {"loss": nn.functional.mse_loss(self.linear(x), y)}
arguments = TrainingArguments(output_dir="out", use_cpu=True, max_steps=4, per_device_train_batch_size=8, learning_rate=0.1, optim="sgd", report_to=[],
                              lr_scheduler_type="constant", save_strategy="no", disable_tqdm=True, max_grad_norm=0.0)
net = Net()
Trainer(net, arguments, train_dataset=[{"x": a, "y": b} for a, b in zip(x, y)]).train()
assert arguments.world_size == size and dist.get_backend() == "libddp"
assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(net.parameters(), alone(4, 0.1))), (list(net.parameters()), alone(4, 0.1))
""")


if __name__ == "__main__":
    main()
