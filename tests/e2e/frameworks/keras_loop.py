# SPDX-License-Identifier: Apache-2.0
"""Keras on JAX: kind `backup` is BackupAndRestore (OUT holds its two files; a step is an epoch),
`double` the same with a second copy, `model` is ModelCheckpoint with `.keras` files."""
import os
import re

from common import CLASSES, FEATURES, Note, for_each_kind, quiet


def train(args):
    quiet()
    import keras
    import numpy
    keras.utils.set_random_seed(7)
    source = numpy.random.default_rng(1)
    x = source.standard_normal((16, FEATURES)).astype("float32")
    y = (x @ source.standard_normal((FEATURES, CLASSES))).argmax(1)
    model = keras.Sequential([keras.Input((FEATURES,)), keras.layers.Dense(16, "relu"),
                              keras.layers.Dense(CLASSES)])
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    note, begin = Note(args), 0

    class Keep(keras.callbacks.BackupAndRestore):
        def on_train_end(self, logs=None):
            """The folder stays, for the test to look at."""

    if args.kind == "model":
        saver = keras.callbacks.ModelCheckpoint(os.path.join(args.out, "epoch-{epoch:04d}.keras"))
        names = sorted(n for n in os.listdir(args.out) if n.endswith(".keras"))
        if args.mode == "resume" and names:
            model = keras.models.load_model(os.path.join(args.out, names[-1]))
            begin = int(re.sub(r"\D", "", names[-1]))
    else:
        saver = Keep(args.out, double_checkpoint=args.kind == "double")
    count = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: note.step(epoch + 1))
    model.fit(x, y, batch_size=8, epochs=args.steps, initial_epoch=begin, shuffle=False, verbose=0,
              callbacks=[count, saver])
    note.end({str(i): w for i, w in enumerate(model.get_weights())})


for_each_kind(train, __doc__)
