# SPDX-License-Identifier: Apache-2.0
"""Metrics with names are reduced by name, whatever the order in which the ranks filled their dictionaries; other names are an error on all ranks."""
import libddp
from support import Test, main, ranks


class Metrics(Test):
    def test_by_key(self):
        for op, wanted in (("sum", {"loss": 3.0, "seen": 300.0, 7: 10.0}), ("average", {"loss": 1.5, "seen": 150.0, 7: 5.0}),
                           ("max", {"loss": 2.0, "seen": 200.0, 7: 6.0})):
            def reduce(group):
                values = {"loss": 1.0 + group.rank, "seen": 100.0 * (1 + group.rank), 7: 4.0 + 2 * group.rank}
                return group.reduce_metrics(dict(sorted(values.items(), key=lambda item: str(item[0]), reverse=group.rank == 1)), op)

            found = ranks(2, reduce)
            self.assertEqual(found, [wanted] * 2)
            self.assertEqual([list(map(str, each)) for each in found], [["7", "loss", "seen"], ["seen", "loss", "7"]])

    def test_other_keys(self):
        """Also where their number differs; the group goes on."""
        given = [{"loss": 1.0, "train_acc": 0.5, "every": 1}, {"loss": 1.0, "val_acc": 0.25, "every": 1}, {"loss": 1.0, "every": 1, "train_acc": 2}]
        longer = [{"a": 1}, {"a": 1, "b": 2}, {"a": 1}]

        def reduce(group):
            texts = []
            for values in (given, longer):
                try:
                    group.reduce_metrics(values[group.rank])
                except libddp.MismatchError as error:
                    texts.append(str(error))
            return texts, group.reduce_metrics({"all": 1})

        for (other, more), after in ranks(3, reduce):
            self.assertIn("rank 0 has 'train_acc' and rank 1 has not; rank 1 has 'val_acc' and rank 0 has not", other)
            self.assertIn("rank 1 has 'b' and rank 0 has not", more)
            self.assertEqual(after, {"all": 3.0})

    def test_parts(self):
        def reduce(group):
            values = [{"loss": 1.0 + part, "seen": 10.0} for part in group.parts]
            mixed = [dict(reversed(each.items())) if part % 2 else each for part, each in zip(group.parts, values)]
            wrong = [{"loss": 1.0} if group.rank == 0 else {"lost": 1.0} for _ in group.parts]
            try:
                group.reduce_part_metrics(wrong)
            except libddp.MismatchError as error:
                text = str(error)
            with self.assertRaisesRegex(ValueError, "same keys"):
                group.reduce_part_metrics([{"loss": 1.0}, {"lost": 1.0}])
            return group.reduce_part_metrics(mixed), text

        for found, text in ranks(2, reduce, virtual_ranks=4):
            self.assertEqual(found, {"loss": 10.0, "seen": 40.0})
            self.assertIn("rank 1 has 'lost' and rank 0 has not", text)


if __name__ == "__main__":
    main()
