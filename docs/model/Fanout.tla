------------------------------- MODULE Fanout -------------------------------
(* Documents that show an author's name. A rename writes a fan-out, a link  *)
(* of a document to the author a refresh of that document; both commit in    *)
(* any order. Workers expand fan-outs page by page (one document each) from  *)
(* a cursor in the row, and carry out refreshes.                             *)
EXTENDS Core

CONSTANTS
    Renames,  \* fan-outs: 11, 12
    Linked,   \* documents of the author from the start, below 10
    Linking,  \* those that a transaction links, or touches if they are linked
    Skips     \* no second refresh where one waits that nobody had claimed at the query

VARIABLES names, links, seq, index, cursor, early, work
vars == <<rows, names, links, seq, index, cursor, early, work>>

Documents == Linked \cup Linking
Refresh(f, d) == f * 10 + d                 \* written by fan-out f; those of links are numbered as their documents
Refreshes == {Refresh(f, d) : f \in Renames, d \in Documents}
Rows == Renames \cup Linking \cup Refreshes
About(e) == IF e > 10 THEN e % 10 ELSE e
View(d) == IF d \in links THEN names ELSE Gone
End == 10                                   \* behind the last document

Idle == [at |-> "idle", event |-> 0, token |-> 0, also |-> {}, paged |-> FALSE, found |-> {}, cursor |-> 0, v |-> 0, body |-> Gone]

Init ==
    /\ rows = [e \in Rows |-> Row(IF e \in Refreshes THEN "none" ELSE "open")]
    /\ names = {}            \* the renames that are committed: what a linked document shows
    /\ links = Linked
    /\ seq = 0
    /\ index = [d \in Documents |-> IF d \in Linked THEN [v |-> 0, body |-> {}] ELSE Forgotten]
    /\ cursor = [f \in Renames |-> 0]
    /\ early \in IF Bug = "expanded in the writer's transaction" THEN [Renames -> {Linked, Documents}] ELSE {[f \in Renames |-> {}]}
    /\ work = [w \in Workers |-> Idle]

At(w, step) == work[w].at = step
Mine(w) == work[w].event

-----------------------------------------------------------------------------
(* Producers. With the mutation the query ran when the rename was written:  *)
(* it saw the links of that moment (`early`), not those of the commit.       *)
Rename(f) ==
    /\ Is(f, "open") /\ early[f] \subseteq links
    /\ names' = names \cup {f}
    /\ rows' = IF Bug # "expanded in the writer's transaction" THEN Become(f, "pending") ELSE
        [e \in Rows |-> IF e = f THEN Row("done") ELSE IF \E d \in early[f] : e = Refresh(f, d) THEN Row("pending") ELSE rows[e]]
    /\ UNCHANGED <<links, seq, index, cursor, early, work>>

Link(d) ==
    /\ Is(d, "open")
    /\ links' = links \cup {d}
    /\ rows' = Become(d, "pending")
    /\ UNCHANGED <<names, seq, index, cursor, early, work>>

-----------------------------------------------------------------------------
(* Fan-outs. New ones of one key in a batch are one; one with a cursor goes *)
(* on alone.                                                                *)
Merges(w, f, others) ==
    /\ others \subseteq {g \in Renames \ {f} : Is(g, "pending") /\ cursor[g] = 0}
    /\ cursor[f] > 0 /\ Bug # "merged with a cursor" => others = {}

ClaimFanout(w, f, others) ==
    /\ At(w, "idle") /\ Is(f, "pending") /\ Merges(w, f, others)
    /\ rows' = [e \in Rows |-> IF e \in {f} \cup others THEN [status |-> "processing", claims |-> rows[e].claims + 1] ELSE rows[e]]
    /\ work' = [work EXCEPT ![w] = [Idle EXCEPT !.at = "asking", !.event = f, !.token = rows'[f].claims,
                                                !.also = {<<g, rows'[g].claims>> : g \in others}]]
    /\ UNCHANGED <<names, links, seq, index, cursor, early>>

Waits(d) == \E e \in Rows \ Renames : About(e) = d /\ Is(e, "pending") /\ rows[e].claims = 0

(* The query, in a snapshot after the claim. What is found is read ahead.   *)
Find(w) ==
    /\ At(w, "asking")
    /\ LET after == cursor[Mine(w)]
       IN work' = [work EXCEPT ![w].at = "paging", ![w].cursor = after,
                               ![w].found = {d \in links : d > after /\ ~(Skips /\ Waits(d))}]
    /\ UNCHANGED <<rows, names, links, seq, index, cursor, early>>

(* A page and the cursor behind it, in one statement, fenced by the token   *)
(* and by the cursor as it was read.                                        *)
Page(w) ==
    /\ At(w, "paging") /\ work[w].found # {}
    /\ LET f == Mine(w)
           d == CHOOSE d \in work[w].found : \A other \in work[w].found : d <= other
           fenced == Holds(f, work[w].token) /\ cursor[f] = work[w].cursor
       IN IF fenced
          THEN /\ rows' = Become(Refresh(f, d), "pending")
               /\ cursor' = [cursor EXCEPT ![f] = d]
               /\ work' = [work EXCEPT ![w].found = @ \ {d}, ![w].cursor = d, ![w].paged = TRUE]
          ELSE work' = [work EXCEPT ![w].at = "lost", ![w].found = {}] /\ UNCHANGED <<rows, cursor>>
    /\ UNCHANGED <<names, links, seq, index, early>>

Give(w, first, others) ==
    rows' = [e \in Rows |->
        CASE e = Mine(w) /\ Holds(e, work[w].token) -> [rows[e] EXCEPT !.status = first]
          [] (\E each \in work[w].also : each[1] = e /\ Holds(e, each[2])) -> [rows[e] EXCEPT !.status = others]
          [] OTHER -> rows[e]]

Reset(w) == work' = [work EXCEPT ![w] = Idle]

Expanded(w) ==
    /\ At(w, "paging") /\ work[w].found = {}
    /\ Give(w, "done", "done") /\ Reset(w)
    /\ UNCHANGED <<names, links, seq, index, cursor, early>>

AllMayComeBack(w) == \A each \in work[w].also \cup {<<Mine(w), work[w].token>>} : Holds(each[1], each[2]) => MayComeBack(each[1])

(* No room for a page: with one of this batch the others are in the first one's hands. *)
Pace(w) ==
    /\ At(w, "paging") /\ work[w].found # {} /\ AllMayComeBack(w)
    /\ Give(w, "pending", IF work[w].paged THEN "done" ELSE "pending") /\ Reset(w)
    /\ UNCHANGED <<names, links, seq, index, cursor, early>>

Lost(w) ==
    /\ At(w, "lost")
    /\ Give(w, "pending", "pending") /\ Reset(w)
    /\ UNCHANGED <<names, links, seq, index, cursor, early>>

-----------------------------------------------------------------------------
(* Refreshes, in short: Refresh.tla has them at length. A claim is a        *)
(* statement, and visible to others a moment later.                         *)
Starts(w, e) ==
    /\ At(w, "idle") /\ Is(e, "pending")
    /\ \A other \in Workers : Mine(other) # e \/ ~At(other, "claiming")
    /\ seq' = IF Bug = "drawn in the claim's statement" THEN seq + 1 ELSE seq
    /\ work' = [work EXCEPT ![w] = [Idle EXCEPT !.at = "claiming", !.event = e, !.v = seq']]
    /\ UNCHANGED <<rows, names, links, index, cursor, early>>

Shows(w) ==
    /\ At(w, "claiming")
    /\ rows' = Claimed(Mine(w))
    /\ work' = [work EXCEPT ![w].at = IF Bug = "drawn in the claim's statement" THEN "drawn" ELSE "claimed", ![w].token = rows'[Mine(w)].claims]
    /\ UNCHANGED <<names, links, seq, index, cursor, early>>

Draw(w) ==
    /\ At(w, "claimed")
    /\ seq' = seq + 1
    /\ work' = [work EXCEPT ![w].at = "drawn", ![w].v = seq']
    /\ UNCHANGED <<rows, names, links, index, cursor, early>>

Read(w) ==
    /\ At(w, "drawn")
    /\ work' = [work EXCEPT ![w].at = "ready", ![w].body = View(About(Mine(w)))]
    /\ UNCHANGED <<rows, names, links, seq, index, cursor, early>>

Write(w) ==
    /\ At(w, "ready")
    /\ index' = [index EXCEPT ![About(Mine(w))] = Written(@, work[w].v, work[w].body)]
    /\ rows' = Settled(Mine(w), work[w].token, "done") /\ Reset(w)
    /\ UNCHANGED <<names, links, seq, cursor, early>>

-----------------------------------------------------------------------------
Die(w) ==
    /\ work[w].at \notin {"idle", "claiming"} /\ AllMayComeBack(w) /\ Reset(w)
    /\ UNCHANGED <<rows, names, links, seq, index, cursor, early>>

Reclaim(e) == Reclaimed(e) /\ UNCHANGED <<names, links, seq, index, cursor, early, work>>

Quiet == (\A e \in Rows : rows[e].status \in {"done", "none"}) /\ \A w \in Workers : At(w, "idle")

Step(w) ==
    \/ \E f \in Renames, others \in SUBSET Renames : ClaimFanout(w, f, others)
    \/ Find(w) \/ Page(w) \/ Expanded(w) \/ Pace(w) \/ Lost(w)
    \/ (\E e \in Rows \ Renames : Starts(w, e)) \/ Shows(w) \/ Draw(w) \/ Read(w) \/ Write(w)
    \/ Die(w)

Next ==
    \/ \E f \in Renames : Rename(f)
    \/ \E d \in Linking : Link(d)
    \/ \E w \in Workers : Step(w)
    \/ \E e \in Rows : Reclaim(e)
    \/ Quiet /\ UNCHANGED vars

Spec == Init /\ [][Next]_vars /\ WF_vars(Next)

NothingStale == Quiet => \A d \in Documents : index[d].body = View(d)
AllSettled == <>Quiet
=============================================================================
