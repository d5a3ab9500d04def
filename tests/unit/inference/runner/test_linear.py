"""The int8 linear is close to the exact one, and a row's bits do not depend on its neighbours."""

import pytest
import torch

from inference.runner.linear import Int8Linear, quantize_linears


@pytest.mark.parametrize(("num_rows", "num_in", "num_out"), [(1, 64, 48), (5, 33, 7), (16, 576, 960), (70, 128, 31)])
@pytest.mark.parametrize("has_bias", [True, False])
def test_int8_is_within_one_percent_of_the_exact_product(num_rows, num_in, num_out, has_bias):
    weight = torch.randn(num_out, num_in)
    bias = torch.randn(num_out) if has_bias else None
    x = torch.randn(num_rows, num_in) * torch.rand(num_rows, 1) * 30
    exact = torch.nn.functional.linear(x, weight, bias)
    got = Int8Linear(weight, bias)(x)
    assert got.shape == exact.shape
    assert (got - exact).norm() / exact.norm() < 0.01


def test_a_row_has_the_same_bits_alone_and_among_outliers():
    linear = Int8Linear(torch.randn(96, 64), torch.randn(96))
    x = torch.randn(33, 64)
    x[1::2] *= 1000
    batched = linear(x)
    for index in range(33):
        assert torch.equal(linear(x[index : index + 1])[0], batched[index])


def test_zero_rows_give_the_bias():
    bias = torch.randn(5)
    assert torch.equal(Int8Linear(torch.randn(5, 8), bias)(torch.zeros(2, 8)), bias.expand(2, 5))


def test_leading_dimensions_are_kept():
    assert Int8Linear(torch.randn(5, 8), None)(torch.randn(1, 3, 8)).shape == (1, 3, 5)


def test_quantize_linears_replaces_every_linear():
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Linear(4, 2)))
    assert quantize_linears(model) == 2
    assert not any(isinstance(module, torch.nn.Linear) for module in model.modules())
