"""A small version of the study of adapters: it runs, and is taken up where it stopped.

The model is tiny and its text made up; what is audited is as in the study.
"""

import sys

import pytest

pytestmark = [pytest.mark.nightly, pytest.mark.filterwarnings("ignore")]


@pytest.fixture
def lora(monkeypatch):
    import language_models  # noqa: PLC0415 (of a folder of scripts)
    import lora  # noqa: PLC0415
    import torch  # noqa: PLC0415

    torch.manual_seed(0)
    rows = torch.randint(2, 64, (240, 8))
    monkeypatch.setattr(language_models, "VOCABULARY", 64)
    monkeypatch.setattr(language_models, "WIDTH", 16)
    monkeypatch.setattr(language_models, "LAYERS", 1)
    monkeypatch.setattr(language_models, "sequences", lambda length: rows)
    model = language_models.made("llama")
    monkeypatch.setattr(lora, "pretrained", lambda: model)
    monkeypatch.setattr(lora, "noise_of", lambda training: 0.8)  # takes seconds
    monkeypatch.setattr(lora, "REAL", 200)
    for name in ("SHORT", "LONGER", "USUAL"):
        short = lora.Training(batch=20, steps=8, length=8)
        monkeypatch.setattr(lora, name, short)
    yield lora
    for name in ("language_models", "lora"):
        sys.modules.pop(name, None)


def test_a_store_is_filled_once_and_told(lora, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(lora, "SIZES", {"1e5": {"r": 2}})
    store = tmp_path / "rows.jsonl"
    for _ in range(2):
        for part in ("power", "cost"):
            lora.fill(part, 1, store)
    rows = lora.lines(store)
    assert [row["part"] for row in rows] == ["power"] * 4 + ["cost"] * 2
    for row in rows[:4]:
        less = row["setting"]["factor"] == 2
        assert bool(row["faults"]) is less
        assert row["refuted"] <= less
    lora.table(store)
    assert "ghost, noise / 2" in capsys.readouterr().out
