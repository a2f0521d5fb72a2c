"""Fan-outs on real servers: after the commit, page by page, fenced, merged and failed by the rules of docs/documents.md."""

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from outbox.daemon import fanout as daemon_fanout
from outbox.errors import DatabaseDown
from outbox.policy.fanout import MOST_OPEN, PAGE, Fanout
from outbox.policy.outcome import Failure
from outbox.store.attach.attach import attach, detach
from outbox.store.fanouts import PostgresFanouts
from tests.fixtures.fanouts import found, waiting
from tests.fixtures.inprocess import InProcess

Connection = psycopg.Connection[Any]
VIA = "select id from articles where author_id = changed.id"
TABLES = """
create table authors (id int primary key, name text);
create table articles (id int primary key, author_id int references authors);
create index on articles (author_id);
create view search_documents as
    select 'article'::text as entity_type, a.id as entity_id, json_build_object('name', u.name) as document
      from articles a join authors u on u.id = a.author_id;
insert into authors values (1, 'Ada'), (2, 'Bo');
"""
