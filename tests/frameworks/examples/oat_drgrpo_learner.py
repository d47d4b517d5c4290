"""The learner and the actor of `oat_drgrpo` on a random model of two layers: nothing of otel-rl is in it.

`python oat_drgrpo_learner.py` writes `train_metrics.jsonl`, as it does anywhere. vLLM, DeepSpeed and Launchpad need
GPUs or another Python: here their names are empty classes. Loop, losses, rewards and collector are the real ones.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from functools import partial
from types import ModuleType
from types import SimpleNamespace as Space
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from tokenizers import Tokenizer, models, pre_tokenizers
from torch.utils.data import DataLoader
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

_ABSENT = ("vllm", "deepspeed", "launchpad", "mosec", "llm_blender", "openai", "pyarrow.plasma")
_CHARACTERS = "0123456789+-*/=() abcdefghijklmnopqrstuvwxyz\\{}"


class _Absent(ModuleType):
    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        known = name in _ABSENT or name.partition(".")[0] in _ABSENT
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if known else None

    def create_module(self, spec: Any) -> ModuleType:
        return _Absent(spec.name)  # `is_package` gives it a path

    def exec_module(self, module: ModuleType) -> None:
        pass


sys.meta_path.append(_Finder())
torch.cuda.current_device = lambda: torch.device("cpu")  # type: ignore[assignment, return-value] # the only device
torch.cuda.synchronize = lambda *_: None  # type: ignore[assignment] # nothing runs beside the CPU

from oat.collectors import FeedbackCollector
from oat.utils.deepspeed import DeepspeedStrategy
from oat.utils.ops import masked_sum
from oat_drgrpo.actor import MATHOracle, ZeroMathActor
from oat_drgrpo.args import ZeroMathArgs
from oat_drgrpo.train_zero_math import ZeroMathLearner
from oat_drgrpo.trajectory_dataset import ZeroMathTrajectoryDataset


def tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer of characters."""
    words = ["<pad>", "<eos>", "<unk>", *_CHARACTERS]
    letters = Tokenizer(models.WordLevel({word: n for n, word in enumerate(words)}, unk_token="<unk>"))
    letters.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    return PreTrainedTokenizerFast(tokenizer_object=letters, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>")


def model() -> Qwen2ForCausalLM:
    """Return a random transformer of two layers."""
    shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    return Qwen2ForCausalLM(Qwen2Config(vocab_size=len(_CHARACTERS) + 3, num_key_value_heads=2, **shape))


class Strategy(DeepspeedStrategy):
    """Plain PyTorch instead of DeepSpeed's engine."""

    world_size = grad_acc_step = 1

    def backward(self, loss: torch.Tensor, model: Any, optimizer: Any, **_: Any) -> None:
        """Compute the gradients."""
        loss.backward()

    def get_gradient_norm(self, model: Any) -> float:
        """Return the norm of the gradients."""
        return float(torch.nn.utils.clip_grad_norm_(model.parameters(), 1e9))

    def optimizer_step(self, optimizer: Any, model: Any, scheduler: Any, **_: Any) -> None:
        """Update the weights."""
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()

    def save_model(self, *_: Any, **__: Any) -> None:
        """Save nothing."""


class Future:
    """Calls of an actor that are answered at once."""

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: Space(
            result=lambda: _evaluated(arguments) if "eval" in name and arguments[1:] else None
        )


def _evaluated(arguments: Any) -> Any:
    texts = ["\\boxed{3}" if n % 2 else "no" for n, _ in enumerate(arguments[0])]
    return texts, torch.tensor([float(text != "no") for text in texts]).numpy()


class Actor(ZeroMathActor):
    """The real actor, with random texts instead of vLLM's."""

    def __init__(self, args: ZeroMathArgs, letters: Any) -> None:
        self.args, self.tokenizer, self.prompt_tokenizer, self.eval_mode = args, letters, letters, False
        self.sampling_params = Space(n=args.num_samples, max_tokens=args.generate_max_length, temperature=1.0)
        self.oracle = MATHOracle(template=args.prompt_template, verifier_version="fast")
        self.ipc_client = Space(serialize_ipc=lambda data: data, deserialize_ipc=lambda data: data)
        self.futures = Future()
        self.numbers = torch.Generator().manual_seed(3)
        self._prompt_token_id_cache: dict[str, list[int]] = {}

    def generate(self, prompts: Any, params: Any) -> list[Any]:
        """Return a right answer in about half of the texts."""
        found = []
        for prompt in prompts:
            ids = prompt["prompt_token_ids"] if isinstance(prompt, dict) else prompt
            outputs = []
            for _ in range(params.n):
                text = "\\boxed{3}" if torch.rand(1, generator=self.numbers) > 0.5 else "\\boxed{4} so"
                tokens = self.tokenizer.encode(text)
                logprobs = [{token: Space(logprob=-1.0)} for token in tokens]
                outputs.append(Space(text=text, token_ids=tokens, logprobs=logprobs, finish_reason="stop"))
            found.append(Space(prompt_token_ids=list(ids), outputs=outputs))
        return found


class Learner(ZeroMathLearner):
    """The real learner; what it gets from DeepSpeed and from files is made here."""

    def _init(self, args: ZeroMathArgs, actors: Any) -> None:
        dist.init_process_group("gloo", init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
        self.strategy = Strategy(args=args)
        self.tokenizer, self.model = tokenizer(), model()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.scheduler = torch.optim.lr_scheduler.LinearLR(self.optimizer, total_iters=20)
        self.ref_model = self.critic = self._wandb = self._wandb_run_id = None
        self.actors = actors = [Actor(args, self.tokenizer)]
        self.collector = FeedbackCollector(args, actors, actors[0].ipc_client)
        self._same_actor_group = dist.new_group([0])
        self.dataset_builder = ZeroMathTrajectoryDataset
        self.masked_aggregator = partial(masked_sum, constant_normalizer=args.generate_max_length)
        self.save_path, self._wandb_run_name, self._requested_use_wb = ".", "toy", False
        self.objective, self.pi_buffer, self.update_interval = "grpo", [], 1
        self.eval_input_key = "problem"
        self.eval_dataset_dict = {"toy": [("1+2=", "1+2=", "3"), ("2+1=", "2+1=", "3")]}
        self.eval_prompts_dataloader = None
        self.prompts_dataset = [("1+2=", "1+2=", "3")] * 10
        self.prompts_dataloader = DataLoader(self.prompts_dataset, batch_size=2, collate_fn=_columns)
        for name in (
            "global_step",
            "policy_sgd_step",
            "query_step",
            "prompt_consumed",
            "prompt_epoch",
            "pi_beta_version",
        ):
            setattr(self, name, 0)
        for name in ("gradient_update_elapse", "weight_sync_elapse", "vllm_go_sleep_time", "vllm_wake_up_time"):
            setattr(self, name, 0.0)
        self.pi_beta_lags_behind = False
        self._baseline_grad_norm_logging_disabled_warned = False
        self._invalid_scoring_token_ids_warned_contexts: set[str] = set()
        self._invalid_logit_columns_warned_contexts: set[str] = set()
        self._prompt_batches_consumed_total = 0

    def eval_dataloader_collate_fn(self, items: Any) -> Any:
        """Return the columns."""
        return _columns(items)

    def _broadcast_to_vllm(self) -> None:
        pass

    def _use_instrumented_grpo_learning_step(self) -> bool:
        return False


def _columns(items: Any) -> tuple[list[str], ...]:
    return tuple(map(list, zip(*items, strict=True)))


if __name__ == "__main__":
    torch.manual_seed(0)
    np.random.seed(0)  # the learner draws from it
    args = ZeroMathArgs()
    told = {"num_samples": 4, "generate_max_length": 16, "train_batch_size_per_device": 4, "num_ppo_epochs": 1}
    told |= {"critic_type": "drgrpo", "num_prompt_epoch": 1, "eval_steps": 3, "logging_steps": 1, "save_steps": -1}
    told |= {"wb_project": "p", "use_wb": False, "online_evaluation": True, "eval_batch_size": 2, "max_queries": 1000}
    told |= {"prompt_template": "no", "learner_gpus_per_group": 1, "num_gpus_per_actor": 1, "beta": 0.0}
    told |= {
        "vllm_sleep": False,
        "debug": False,
        "buffer_clear_every": 1,
        "resume_dir": "",
        "policy_entropy_coef": 0.01,
    }
    for name, value in told.items():
        setattr(args, name, value)
    learner = Learner.__new__(Learner)
    learner.args, learner.actors = args, []
    learner.run()
