# SPDX-License-Identifier: Apache-2.0
"""Lightning's ModelCheckpoint with single files; kind `copy` or `link`: what `last.ckpt` is."""
import logging
import warnings

from common import Note, for_each_kind, quiet, torch_arrays, torch_data, torch_model


def train(args):
    quiet()
    warnings.simplefilter("ignore")
    import torch
    import lightning.pytorch as pl
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    note = Note(args)

    class Net(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = torch_model()

        def training_step(self, batch, index):
            return torch.nn.functional.cross_entropy(self.net(batch[0]), batch[1])

        def on_train_batch_end(self, *unused):
            note.step(self.trainer.global_step)

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), lr=1e-2)

    # An epoch ends with each save: a loader without a state begins anew after a resume.
    data = torch.utils.data.TensorDataset(*(t[:4 * args.every] for t in torch_data()))
    net = Net()
    trainer = pl.Trainer(
        accelerator="cpu", devices=1, max_steps=args.steps, logger=False,
        enable_progress_bar=False, enable_model_summary=False,
        callbacks=[pl.callbacks.ModelCheckpoint(
            dirpath=args.out, every_n_train_steps=args.every, filename="{step}",
            save_top_k=1 if args.keep else -1, save_last="link" if args.kind == "link" else True,
            enable_version_counter=False)])
    trainer.fit(net, torch.utils.data.DataLoader(data, batch_size=4),
                ckpt_path="last" if args.mode == "resume" else None)
    note.end(torch_arrays(net.net))


for_each_kind(train, __doc__)
