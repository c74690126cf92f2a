"""Files are written as a whole or not at all, and no link beside them is followed."""

import os

import pytest
import torch

from lawful import _files
from lawful.data import Graph, Mesh, write_graph, write_ply
from lawful.data.text import ByteTokenizer, Corpus, tokenize_corpus
from lawful.probe import figures

GRAPH = Graph(torch.eye(3), torch.tensor([[0, 1], [1, 2]]))
TRIANGLE = Mesh(torch.eye(3), torch.tensor([[0, 1, 2]]))


def write_bars(path):
    figures.save(figures.dead_unit_bars({"relu": (1, 2)}), path)


WRITERS = {
    "mesh.ply": lambda path: write_ply(path, TRIANGLE),
    "text.ply": lambda path: write_ply(path, TRIANGLE, binary=False),
    "edges.csv": lambda path: write_graph(GRAPH, edges=path, nodes=path.with_name("nodes.csv")),
    "nodes.csv": lambda path: write_graph(GRAPH, edges=path.with_name("edges.csv"), nodes=path),
    "tokens.bin": lambda path: tokenize_corpus(Corpus("abba"), ByteTokenizer(), into=path),
    "bars.png": write_bars,
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_file_is_replaced_as_a_whole(tmp_path, monkeypatch, name):
    path = tmp_path / name
    path.write_text("the old file")

    def fail(*args, **options):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(_files.os, "replace", fail)
        with pytest.raises(OSError, match="No space left"):
            WRITERS[name](path)
    assert path.read_text() == "the old file"
    assert os.listdir(tmp_path) == [name]
    WRITERS[name](path)
    assert path.read_bytes() != b"the old file"
    assert not [found for found in os.listdir(tmp_path) if found not in ("edges.csv", "nodes.csv", name)]


@pytest.mark.parametrize("name", WRITERS)
def test_files_beside_it_are_not_touched(tmp_path, name):
    secret = tmp_path / "secret.txt"
    secret.write_text("secret")
    for suffix in (".part", ".tmp", ".unfinished", "~"):
        (tmp_path / f"{name}{suffix}").symlink_to(secret)
    WRITERS[name](tmp_path / name)
    assert secret.read_text() == "secret"
    assert len(list(tmp_path.glob(f"{name}?*"))) == 4


def test_a_graph_that_cannot_be_written_leaves_no_file(tmp_path):
    graph = Graph(torch.eye(3), torch.tensor([[0, 1], [1, 2]]), y=torch.tensor([1]))
    with pytest.raises(ValueError, match="expected a graph with a label per node"):
        write_graph(graph, edges=tmp_path / "edges.csv", nodes=tmp_path / "nodes.csv")
    assert not os.listdir(tmp_path)
