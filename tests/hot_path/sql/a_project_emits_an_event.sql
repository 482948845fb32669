-- a project emits an event

\set p1 '''order.paid'''
\set p2 '''{}'''
\set p3 ''''''
\set p4 'NULL'
SELECT public.wakeful_emit(:p1::text, :p2::jsonb, :p3::text, :p4::text);
