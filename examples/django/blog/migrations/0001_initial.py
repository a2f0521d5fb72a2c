"""The tables."""

from __future__ import annotations

from typing import ClassVar

import django.db.models.deletion
from django.db import migrations, models
from django.db.migrations.operations.base import Operation

KEY: models.BigAutoField[int, int] = models.BigAutoField(
    auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
)


class Migration(migrations.Migration):
    initial = True
    dependencies: ClassVar[list[tuple[str, str]]] = []
    operations: ClassVar[list[Operation]] = [
        migrations.CreateModel(name="Article", fields=[("id", KEY.clone()), ("title", models.TextField())]),
        migrations.CreateModel(
            name="Comment",
            fields=[
                ("id", KEY.clone()),
                ("text", models.TextField()),
                ("article", models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, to="blog.article")),
            ],
        ),
    ]
