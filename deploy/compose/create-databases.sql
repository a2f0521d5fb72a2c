-- Run once, when the volume is new. wordloom_dev is made by the image itself (POSTGRES_DB).
create database wordloom_test owner wordloom;
