"""Averages of the weights along the path of training: what is validated and kept."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping

import torch
from torch import Tensor

Weights = dict[str, Tensor]
"""Parameters by name."""

REACH = 8
"""The running average reaches back over about a part in so many of the steps so far."""


class Average(ABC):
    """Weights made of those that training has passed through."""

    @abstractmethod
    def after_step(self, step: int, weights: Weights) -> None:
        """See the weights after an optimizer step, counted from 1; they may change later."""

    @abstractmethod
    def at_validation(self, weights: Weights) -> Weights:
        """Give what to validate in place of these weights; it is valid until the next step."""

    @abstractmethod
    def state(self) -> Weights:
        """Give what a resumed run needs."""

    @abstractmethod
    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Put back what ``state`` gave."""


class RunningAverage(Average):
    """Polynomial-decay averaging over every step (Shamir & Zhang 2013, section 4).

    The newest weights have the share (r + 1) / (r + step), r = ``REACH``: the average forgets the
    early weights, which are far from where training will end, whatever the length of the run.
    """

    def __init__(self, weights: Weights, reach: int = REACH) -> None:
        self.reach = reach
        self.mean = {name: tensor.clone() for name, tensor in weights.items()}

    def after_step(self, step: int, weights: Weights) -> None:
        """Move towards the newest weights."""
        share = (self.reach + 1) / (self.reach + step)
        torch._foreach_lerp_(list(self.mean.values()), list(weights.values()), share)

    def at_validation(self, weights: Weights) -> Weights:
        """Give the mean so far."""
        return self.mean

    def state(self) -> Weights:
        """Give the mean so far."""
        return dict(self.mean)

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Put the mean back, on the device where it was."""
        for name, tensor in self.mean.items():
            tensor.copy_(state[name])


class MeanOfValidations(Average):
    """The plain mean of the weights at the last ``last`` validations, this one included."""

    def __init__(self, last: int) -> None:
        self.seen: deque[Weights] = deque(maxlen=last)

    def after_step(self, step: int, weights: Weights) -> None:
        """Pass over the weights between two validations."""

    def at_validation(self, weights: Weights) -> Weights:
        """Add these weights and give the mean."""
        self.seen.append(weights)
        return {
            name: torch.stack([seen[name].to(newest.device) for seen in self.seen]).mean(dim=0)
            for name, newest in weights.items()
        }

    def state(self) -> Weights:
        """Give all that are remembered, numbered from the oldest."""
        return {
            f"{number}.{name}": tensor
            for number, seen in enumerate(self.seen)
            for name, tensor in seen.items()
        }

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Remember them again."""
        numbered: dict[int, Weights] = {}
        for key, tensor in state.items():
            number, _, name = key.partition(".")
            numbered.setdefault(int(number), {})[name] = tensor
        self.seen.clear()
        self.seen.extend(numbered[number] for number in sorted(numbered))


class Newest(Average):
    """No average: the weights as they are."""

    def after_step(self, step: int, weights: Weights) -> None:
        """Remember nothing."""

    def at_validation(self, weights: Weights) -> Weights:
        """Give them back."""
        return weights

    def state(self) -> Weights:
        """Give nothing."""
        return {}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Put nothing back."""


def make_average(last: int | None, weights: Weights) -> Average:
    """Choose by ``--average``: None is the running average, 0 no average at all."""
    if last is None:
        return RunningAverage(weights)
    return MeanOfValidations(last) if last else Newest()
