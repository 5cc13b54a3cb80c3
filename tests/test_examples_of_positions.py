"""The examples about positions, on small inputs."""

import pytest
import torch

from .examples import load_example


def test_the_matrix_of_a_shift_leads_to_later_positions(tmp_path, capsys):
    example = load_example("shift_positions")
    table = example.vectors()
    torch.testing.assert_close(table[:-7] @ example.shift_matrix(7), table[7:], rtol=0, atol=2e-5)
    assert example.main(tmp_path / "sinusoids.png") == 0
    assert (tmp_path / "sinusoids.png").stat().st_size > 1000
    assert "differ by" in capsys.readouterr().out


def test_perplexity_is_read_in_parts():
    class Guesser(torch.nn.Module):
        """Gives each token its share of the vocabulary."""

        def forward(self, input_ids, labels, reduction):
            assert input_ids.shape[1] == 64
            assert reduction == "sum"
            loss = labels[:, 1:].numel() * torch.tensor(10.0).log()
            return type("Output", (), {"loss": loss})

    assert load_example("extrapolate").perplexity(Guesser(), torch.arange(700), 64) == pytest.approx(10.0)
