"""What a transformer is made of besides attention and feed-forward: orders of sublayers, gates, mixes, tables."""

from lawful.blocks.transformer.gates import Gate, LayerScale
from lawful.blocks.transformer.mix import Mix
from lawful.blocks.transformer.ngrams import NGramEmbedding
from lawful.blocks.transformer.order import MACARON, order, sandwich
from lawful.blocks.transformer.softcap import softcap
from lawful.blocks.transformer.splitting import split

__all__ = ["MACARON", "Gate", "LayerScale", "Mix", "NGramEmbedding", "order", "sandwich", "softcap", "split"]
