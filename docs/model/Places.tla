------------------------------- MODULE Places -------------------------------
(* A document with a routing: it moves, or goes, with each transaction. A    *)
(* place is noted before the document is written there; after the write it   *)
(* leaves every place but that of the highest number, each under its own     *)
(* number. Places may share a shard, where they are one document.            *)
EXTENDS Core

CONSTANTS
    Moves,   \* the view's place after each transaction, in their order: 1, 2, or 0 for none
    Shared,  \* both places are on one shard
    Forgets  \* how often the servers forget their deletes

VARIABLES view, seq, index, noted, cleared, work, forgets
vars == <<rows, view, seq, index, noted, cleared, work, forgets>>

Away == <<1, 2>>       \* from one place to the other
AndBack == <<1, 2, 1>>
AndGone == <<1, 2, 0>>
Events == DOMAIN Moves
Routings == {1, 2}
Shard(routing) == IF Shared THEN 1 ELSE routing
Shards == {Shard(routing) : routing \in Routings}
None == 0      \* gone is a place too
Places == Routings \cup {None}

Idle == [at |-> "idle", event |-> 0, token |-> 0, v |-> 0, to |-> None, wrote |-> {}, leaves |-> {}, old |-> FALSE, refused |-> 0]

Init ==
    /\ rows = [e \in Events |-> Row("open")]
    /\ view = None
    /\ seq = 0
    /\ index = [shard \in Shards |-> Forgotten]
    /\ noted = [place \in Places |-> 0]   \* under which number; 0: not at all
    /\ cleared = {}                       \* their deletes were acknowledged; the rows stay for an hour
    /\ work = [w \in Workers |-> Idle]
    /\ forgets = 0

At(w, step) == work[w].at = step
Mine(w) == Holds(work[w].event, work[w].token)

Commit(e) ==
    /\ Is(e, "open") /\ \A other \in Events : Is(other, "open") => e <= other
    /\ rows' = Become(e, "pending") /\ view' = Moves[e]
    /\ UNCHANGED <<seq, index, noted, cleared, work, forgets>>

Claim(w, e) ==
    /\ At(w, "idle") /\ Is(e, "pending")
    /\ rows' = Claimed(e)
    /\ work' = [work EXCEPT ![w] = [Idle EXCEPT !.at = "claimed", !.event = e, !.token = rows'[e].claims]]
    /\ UNCHANGED <<view, seq, index, noted, cleared, forgets>>

Draw(w) ==
    /\ At(w, "claimed")
    /\ seq' = seq + 1
    /\ work' = [work EXCEPT ![w].at = "drawn", ![w].v = seq']
    /\ UNCHANGED <<rows, view, index, noted, cleared, forgets>>

Read(w) ==
    /\ At(w, "drawn")
    /\ work' = [work EXCEPT ![w].at = "read", ![w].to = view]
    /\ UNCHANGED <<rows, view, seq, index, noted, cleared, forgets>>

(* A number never goes back; what is about to be written to is not cleared. *)
TakeDown(w) ==
    /\ noted' = [noted EXCEPT ![work[w].to] = Max(@, work[w].v)]
    /\ cleared' = cleared \ {work[w].to}

AtTheSettle == Bug = "a place is noted at the settle"

Note(w) ==
    /\ At(w, "read")
    /\ IF AtTheSettle THEN UNCHANGED <<noted, cleared>> ELSE TakeDown(w)
    /\ work' = [work EXCEPT ![w].at = "noted"]
    /\ UNCHANGED <<rows, view, seq, index, forgets>>

(* A request and its arrival; before it a worker may sleep for ever so long. *)
Put(shard, v, routing) == index' = [index EXCEPT ![shard] = Written(@, v, IF routing = None THEN Gone ELSE {routing})]

Write(w) ==
    /\ At(w, "noted")
    /\ LET to == work[w].to
           accepted == IF to = None THEN TRUE ELSE Accepts(index[Shard(to)], work[w].v)
           own == IF to = None THEN {} ELSE {<<to, work[w].v>>}
       IN /\ IF to = None THEN UNCHANGED index ELSE Put(Shard(to), work[w].v, to)
          /\ work' = IF accepted \/ work[w].refused = 1 \/ work[w].old
                     THEN [work EXCEPT ![w].at = "written", ![w].wrote = @ \cup own]
                     ELSE [work EXCEPT ![w].at = "claimed", ![w].wrote = @ \cup own, ![w].refused = 1]
    /\ UNCHANGED <<rows, view, seq, noted, cleared, forgets>>

(* All rows of the entity are read again: every place but the newest is     *)
(* left. And where this worker itself wrote before, though its row is gone.  *)
Number(w, place) == IF Bug = "left under the new number" THEN work[w].v ELSE noted[place]
Newest(place) == \A other \in Places : noted[other] <= noted[place]
Others(w) ==
    {<<place, Number(w, place)>> : place \in {r \in Routings : noted[r] > 0 /\ ~Newest(r)}}
    \cup {own \in work[w].wrote : own[1] # work[w].to /\ noted[own[1]] = 0 /\ Bug # "its own places are forgotten"}

List(w) ==
    /\ At(w, "written")
    /\ work' = [work EXCEPT ![w].at = "leaving", ![w].leaves = Others(w)]
    /\ UNCHANGED <<rows, view, seq, index, noted, cleared, forgets>>

Leave(w) == \E place \in work[w].leaves :
    /\ At(w, "leaving")
    /\ Put(Shard(place[1]), place[2], None)
    /\ cleared' = IF noted[place[1]] = place[2] THEN cleared \cup {place[1]} ELSE cleared
    /\ work' = [work EXCEPT ![w].leaves = @ \ {place}]
    /\ UNCHANGED <<rows, view, seq, noted, forgets>>

Redo(w) ==
    /\ At(w, "leaving") /\ work[w].leaves = {} /\ work[w].old
    /\ work' = [work EXCEPT ![w].at = "claimed", ![w].old = FALSE]
    /\ UNCHANGED <<rows, view, seq, index, noted, cleared, forgets>>

Done(w) ==
    /\ At(w, "leaving") /\ work[w].leaves = {} /\ ~work[w].old
    /\ rows' = Settled(work[w].event, work[w].token, "done")
    /\ IF AtTheSettle THEN TakeDown(w) ELSE UNCHANGED <<noted, cleared>>
    /\ work' = [work EXCEPT ![w] = Idle]
    /\ UNCHANGED <<view, seq, index, forgets>>

-----------------------------------------------------------------------------
(* Not modelled: one who has lost its row to others that finished it, and   *)
(* dies after its write and before it has left the other places.            *)
Die(w) ==
    /\ ~At(w, "idle") /\ Mine(w) /\ MayComeBack(work[w].event)
    /\ work' = [work EXCEPT ![w] = Idle]
    /\ UNCHANGED <<rows, view, seq, index, noted, cleared, forgets>>

Reclaim(e) == Reclaimed(e) /\ UNCHANGED <<view, seq, index, noted, cleared, work, forgets>>

Late == [w \in Workers |-> [work[w] EXCEPT !.old = @ \/ work[w].at \notin {"idle", "claimed"}]]

Forget(shard) ==
    /\ index[shard].body = Gone /\ index[shard].v > 0 /\ forgets < Forgets
    /\ index' = [index EXCEPT ![shard] = Forgotten] /\ forgets' = forgets + 1
    /\ work' = Late
    /\ UNCHANGED <<rows, view, seq, noted, cleared>>

(* After an hour: who had read before knows that it is late.               *)
ForgetPlace(place) ==
    /\ place \in cleared /\ forgets < Forgets
    /\ noted' = [noted EXCEPT ![place] = 0] /\ cleared' = cleared \ {place} /\ forgets' = forgets + 1
    /\ work' = Late
    /\ UNCHANGED <<rows, view, seq, index>>

Quiet == (\A e \in Events : Is(e, "done")) /\ \A w \in Workers : At(w, "idle")

Step(w) ==
    \/ (\E e \in Events : Claim(w, e)) \/ Draw(w) \/ Read(w) \/ Note(w) \/ Write(w) \/ List(w) \/ Leave(w)
    \/ Redo(w) \/ Done(w) \/ Die(w)

Next ==
    \/ \E e \in Events : Commit(e) \/ Reclaim(e)
    \/ \E w \in Workers : Step(w)
    \/ \E shard \in Shards : Forget(shard)
    \/ \E place \in Places : ForgetPlace(place)
    \/ Quiet /\ UNCHANGED vars

Spec == Init /\ [][Next]_vars /\ WF_vars(Next)

Standing == {shard \in Shards : index[shard].body # Gone}
NothingLost == Quiet /\ view # None => index[Shard(view)].body = {view}
InOnePlace == Quiet => Cardinality(Standing) = (IF view = None THEN 0 ELSE 1)
AllSettled == <>Quiet
=============================================================================
