"""The routes. A handler changes objects in one transaction; triggers write the events in it."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

from elastic_transport import HttpxAsyncHttpNode
from elasticsearch import AsyncElasticsearch
from fastapi import Depends, FastAPI, HTTPException
from pydantic import BaseModel
from sqlalchemy.ext.asyncio import AsyncSession

from .database import engine, sessions
from .models import Article, Comment

INDEX = os.environ["ELASTIC_INDEX"]
elastic = AsyncElasticsearch(os.environ["ELASTIC_URL"], node_class=HttpxAsyncHttpNode)


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    yield
    await elastic.close()
    await engine.dispose()


async def transaction() -> AsyncIterator[AsyncSession]:
    """One per request: committed if its handler returns, rolled back if it raises."""
    async with sessions.begin() as session:
        yield session


# Before the answer is sent: whoever reads it may rely on the commit.
Transaction = Annotated[AsyncSession, Depends(transaction, scope="function")]
app = FastAPI(lifespan=lifespan)


class ArticleIn(BaseModel):
    title: str


class CommentIn(BaseModel):
    text: str


class Made(BaseModel):
    id: int


class Found(BaseModel):
    id: str
    title: str
    comments: list[str]


@app.post("/articles", status_code=201)
async def add_article(given: ArticleIn, session: Transaction) -> Made:
    article = Article(title=given.title)
    session.add(article)
    await session.flush()
    return Made(id=article.id)


@app.put("/articles/{id}")
async def change_article(id: int, given: ArticleIn, session: Transaction) -> Made:
    article = await session.get(Article, id)
    if article is None:
        raise HTTPException(404)
    article.title = given.title
    return Made(id=id)


@app.delete("/articles/{id}", status_code=204)
async def remove_article(id: int, session: Transaction) -> None:
    article = await session.get(Article, id)
    if article is None:
        raise HTTPException(404)
    await session.delete(article)


@app.post("/articles/{id}/comments", status_code=201)
async def add_comment(id: int, given: CommentIn, session: Transaction) -> Made:
    if await session.get(Article, id) is None:
        raise HTTPException(404)
    comment = Comment(article_id=id, text=given.text)
    session.add(comment)
    await session.flush()
    return Made(id=comment.id)


@app.get("/search")
async def search(q: str) -> list[Found]:
    query = {"multi_match": {"query": q, "fields": ["title", "comments"]}}
    reply = await elastic.search(index=INDEX, query=query)
    return [Found(id=hit["_id"], **hit["_source"]) for hit in reply["hits"]["hits"]]
