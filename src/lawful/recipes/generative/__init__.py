"""Recipes of generative models: from PCA to diffusion, on any data, under one contract."""

from lawful.recipes.generative.attack import Attack
from lawful.recipes.generative.autoencode import Autoencode
from lawful.recipes.generative.diffusion import Diffusion
from lawful.recipes.generative.flow import Flow
from lawful.recipes.generative.form import Form
from lawful.recipes.generative.gan import Gan
from lawful.recipes.generative.given import Observations, Observed
from lawful.recipes.generative.pca import Pca
from lawful.recipes.generative.vae import Vae

__all__ = ["Attack", "Autoencode", "Diffusion", "Flow", "Form", "Gan", "Observations", "Observed", "Pca", "Vae"]
